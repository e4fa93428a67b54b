'''
id = "SF-082"
name = "memory that nobody can look into"
attempt = "memfd_secret(2): creates pages that the kernel itself does not map and never swaps."
severity = "medium"
proven_open = "user"
since = "6.5"

[[expect]]
errno = ["EPERM"]
'''

def attempt():
    escaped("descriptor %d" % checked(447, 0))


run(attempt)

'''
id = "KS-003"
name = "userfaultfd"
attempt = "userfaultfd(UFFD_USER_MODE_ONLY): widens kernel races."
severity = "high"
proven_open = "user"

[[expect]]
errno = ["EPERM", "ENOSYS"]
'''

UFFD_USER_MODE_ONLY = 1


def attempt():
    result, code = syscall(number(323, 282), UFFD_USER_MODE_ONLY)
    if result >= 0:
        escaped("uffd %d" % result)
    else:
        contained(errno_name(code))


run(attempt)

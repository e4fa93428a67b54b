'''
id = "SF-073"
name = "ask what is shared with the parent"
attempt = """
kcmp(2): reveals whether two processes share their memory, and the order of the kernel objects."""
severity = "low"
proven_open = "user"
open_mode = "zygote"

[[expect]]
errno = ["EPERM"]
'''

KCMP_VM = 1


def attempt():
    order = checked(number(312, 272), os.getpid(), os.getppid() or 1, KCMP_VM, 0, 0)
    escaped("the order is %d" % order)


run(attempt)

'''
id = "SF-070"
name = "give the parent a child"
attempt = "clone(CLONE_PARENT): the new process would be the zygote's own child."
severity = "high"
proven_open = "user"
open_mode = "zygote"

[[expect]]
errno = ["EPERM"]
'''

CLONE_PARENT, SIGCHLD = 0x8000, 17


def attempt():
    child = checked(number(56, 220), CLONE_PARENT | SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    escaped("child %d" % child)


run(attempt)

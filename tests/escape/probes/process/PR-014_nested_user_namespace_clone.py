'''
id = "PR-014"
name = "nested user namespace by clone"
attempt = "Raw clone(CLONE_NEWUSER|SIGCHLD): flags must be filtered by mask."
severity = "critical"
proven_open = "user"
needs = ["user-namespaces"]

[[expect]]
errno = ["EPERM"]
'''

import signal

CLONE_NEWUSER = 0x10000000


def attempt():
    result, code = syscall(number(56, 220), CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if result == 0:
        os._exit(0)
    if result > 0:
        os.waitpid(result, 0)
        escaped("clone(NEWUSER) child %d" % result)
    else:
        contained(errno_name(code))


run(attempt)

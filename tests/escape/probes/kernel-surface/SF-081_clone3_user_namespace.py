'''
id = "SF-081"
name = "new user namespace by clone3"
attempt = "clone3(CLONE_NEWUSER): its flags are in memory, which a filter cannot read."
severity = "critical"
proven_open = "user"
needs = ["user-namespaces"]
since = "5.3"

[[expect]]
errno = ["ENOSYS"]
'''

import ctypes

CLONE_NEWUSER, SIGCHLD = 0x10000000, 17


def attempt():
    wanted = (ctypes.c_uint64 * 11)(CLONE_NEWUSER, 0, 0, 0, SIGCHLD)
    child = checked(435, wanted, 88)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    escaped("child %d in a namespace of its own" % child)


run(attempt)

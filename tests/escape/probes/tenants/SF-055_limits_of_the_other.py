'''
id = "SF-055"
name = "take the other's limits away"
attempt = "One tenant shares its process id, and the other lowers its limit of open files."
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 3

[[expect]]
errno = ["EPERM"]
text = ["holds", "lowered", "as it was"]
why = "the number is that of the visitor's own process, whose limits it may lower"
'''

import ctypes

NOFILE = 7


def hold():
    print("VALUE %d" % os.getpid())
    contained("holds")


def visit():
    new = (ctypes.c_uint64 * 2)(55, 55)
    checked(number(302, 261), int(var("PREV")), NOFILE, new, None)
    contained("lowered")


def look():
    import resource

    if resource.getrlimit(NOFILE)[0] == 55:
        escaped("the other has lowered it")
    else:
        contained("as it was")


tenants(hold, visit, look)

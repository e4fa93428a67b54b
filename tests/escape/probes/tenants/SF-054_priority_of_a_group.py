'''
id = "SF-054"
name = "slow the other down"
attempt = "One tenant shares its process group, and the other lowers its priority."
severity = "medium"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 3

[[expect]]
text = ["holds", "lowered", "as it was"]
errno = ["ESRCH"]
'''

def hold():
    kept["nice"] = os.getpriority(os.PRIO_PROCESS, 0)
    print("VALUE %d" % os.getpgrp())
    contained("holds")


def visit():
    os.setpriority(os.PRIO_PGRP, int(var("PREV")), 19)
    contained("lowered")


def look():
    if os.getpriority(os.PRIO_PROCESS, 0) != kept["nice"]:
        escaped("the other has lowered it")
    else:
        contained("as it was")


tenants(hold, visit, look)

'''
id = "SF-052"
name = "signal the other"
attempt = "One tenant shares its process id, and the other sends it a signal."
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 3

[[expect]]
text = ["holds", "sent", "no signal came"]
errno = ["ESRCH"]
'''

import signal


def hold():
    signal.signal(signal.SIGUSR2, lambda *_: kept.update(told=True))
    print("VALUE %d" % os.getpid())
    contained("holds")


def visit():
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    os.kill(int(var("PREV")), signal.SIGUSR2)
    contained("sent")


def look():
    if kept.get("told"):
        escaped("the other's signal came")
    else:
        contained("no signal came")


tenants(hold, visit, look)

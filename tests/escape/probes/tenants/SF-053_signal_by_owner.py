'''
id = "SF-053"
name = "have the kernel signal the other"
attempt = """
One tenant shares its process id, and the other makes it the owner of a socket, so that the kernel
signals the socket's events to it."""
severity = "medium"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 3

[[expect]]
text = ["holds", "sent", "no signal came"]
errno = ["EPERM", "ESRCH"]
'''

import fcntl
import signal
import socket


def hold():
    signal.signal(signal.SIGIO, lambda *_: kept.update(told=True))
    print("VALUE %d" % os.getpid())
    contained("holds")


def visit():
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    near, far = socket.socketpair()
    fcntl.fcntl(near, fcntl.F_SETOWN, int(var("PREV")))
    fcntl.fcntl(near, fcntl.F_SETFL, fcntl.fcntl(near, fcntl.F_GETFL) | os.O_ASYNC)
    far.send(b"x")
    contained("sent")


def look():
    if kept.get("told"):
        escaped("the other's signal came")
    else:
        contained("no signal came")


tenants(hold, visit, look)

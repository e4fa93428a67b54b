'''
id = "SF-040"
name = "hold up whoever opens a file"
attempt = """
Take a lease on a shown file of the same user: another opener waits, and the tenant is notified."""
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 3
set = ["filesystem.read=[\"{SHARED}\"]"]

[[expect]]
errno = ["EPERM", "EACCES"]
text = ["opened", "told of nothing"]
'''

import fcntl
import signal


def hold():
    kept["file"] = open(var("SHARED"))
    signal.signal(signal.SIGIO, lambda *_: kept.update(told=True))
    fcntl.fcntl(kept["file"], fcntl.F_SETLEASE, fcntl.F_WRLCK)
    contained("holds")


def visit():
    try:
        os.close(os.open(var("SHARED"), os.O_RDONLY | os.O_NONBLOCK))
        contained("opened")
    except BlockingIOError:
        escaped("held up")


def look():
    if kept.get("told"):
        escaped("told of the other")
    else:
        contained("told of nothing")


tenants(hold, visit, look)

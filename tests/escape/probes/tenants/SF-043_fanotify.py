'''
id = "SF-043"
name = "watch what others open, by fanotify"
attempt = """
Watch a file that is shown to both tenants with an unprivileged fanotify group while the other
opens it."""
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 3
since = "5.13"

[[expect]]
errno = ["EPERM"]
exception = ["KeyError"]
text = ["opened"]
'''

import ctypes
import sched as module

FANOTIFY_INIT, FANOTIFY_MARK = number(300, 262), number(301, 263)
FAN_NONBLOCK, FAN_REPORT_FID, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD = 2, 0x200, 1, 0x20, -100


def hold():
    kept["group"] = checked(FANOTIFY_INIT, FAN_NONBLOCK | FAN_REPORT_FID, os.O_RDONLY)
    path = ctypes.c_char_p(module.__file__.encode())
    checked(FANOTIFY_MARK, kept["group"], FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, path)
    contained("holds")


def visit():
    with open(module.__file__):
        contained("opened")


def look():
    if os.read(kept["group"], 4096):
        escaped("saw the other open it")


tenants(hold, visit, look)

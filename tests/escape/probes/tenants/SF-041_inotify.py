'''
id = "SF-041"
name = "watch what others open"
attempt = """
Watch the directory of the standard library with inotify while another tenant opens a file there."""
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 3

[[expect]]
errno = ["EPERM"]
exception = ["KeyError"]
text = ["opened"]
'''

import ctypes
import sched as module

libc = ctypes.CDLL(None, use_errno=True)
IN_NONBLOCK, IN_OPEN = 0o4000, 0x20


def watch(directory):
    watcher = libc.inotify_init1(IN_NONBLOCK)
    if watcher < 0 or libc.inotify_add_watch(watcher, os.fsencode(directory), IN_OPEN) < 0:
        raise OSError(ctypes.get_errno(), errno_name(ctypes.get_errno()))
    return watcher


def hold():
    kept["watcher"] = watch(os.path.dirname(module.__file__))
    contained("holds")


def visit():
    with open(module.__file__):
        contained("opened")


def look():
    if os.path.basename(module.__file__).encode() in os.read(kept["watcher"], 1 << 16):
        escaped("saw what the other opened")


tenants(hold, visit, look)

'''
id = "SF-038"
name = "meet at a lock on a file that both are shown"
attempt = """
One tenant locks a module of the standard library by flock(2), and the other finds it locked."""
severity = "low"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["ENOLCK"]
text = ["not locked"]
'''

import fcntl
import sched as module


def hold():
    kept["file"] = open(module.__file__)
    # A shared lock, so that other runs of this probe can hold it too.
    fcntl.flock(kept["file"], fcntl.LOCK_SH | fcntl.LOCK_NB)
    contained("holds")


def visit():
    with open(module.__file__) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            contained("not locked")
        except BlockingIOError:
            escaped("locked by the other")


tenants(hold, visit)

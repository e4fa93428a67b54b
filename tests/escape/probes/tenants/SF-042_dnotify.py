'''
id = "SF-042"
name = "be told of what others read"
attempt = """
Request a signal with fcntl(2), F_NOTIFY, when a file of the standard library is read, while another
tenant reads one."""
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 3

[[expect]]
errno = ["EPERM"]
text = ["read", "told of nothing"]
'''

import fcntl
import sched as module
import signal

F_NOTIFY, DN_ACCESS = 1026, 1


def hold():
    kept["told"] = 0
    signal.signal(signal.SIGIO, lambda *_: kept.update(told=kept["told"] + 1))
    kept["directory"] = os.open(os.path.dirname(module.__file__), os.O_RDONLY)
    fcntl.fcntl(kept["directory"], F_NOTIFY, DN_ACCESS)
    contained("holds")


def visit():
    with open(module.__file__) as file:
        file.read(1)
    contained("read")


def look():
    os.close(kept["directory"])
    if kept["told"]:
        escaped("told of what the other read")
    else:
        contained("told of nothing")


tenants(hold, visit, look)

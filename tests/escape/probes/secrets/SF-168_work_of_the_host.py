'''
id = "SF-168"
name = "work of the host and of other tenants"
attempt = """
Compute for a while, and look which of the kernel's figures about the machine have moved: what one tenant does, the
others would see in them."""
severity = "medium"
proven_open = "user"

[[expect]]
text = ["none moves"]
'''

import ctypes
import time

FILES = "stat loadavg uptime meminfo vmstat interrupts softirqs schedstat diskstats buddyinfo pressure/cpu".split()
SYSINFO = ctypes.c_ulong * 14


def figures():
    found = {}
    for name in FILES:
        try:
            with open("/proc/" + name) as file:
                found[name] = file.read()
        except OSError:
            pass
    info = SYSINFO()
    checked(number(99, 179), info)
    found["sysinfo"] = list(info)
    return found


def attempt():
    before = figures()
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        pass
    after = figures()
    moved = [name for name in before if after[name] != before[name]]
    if moved:
        escaped(" ".join(moved))
    else:
        contained("none moves")


run(attempt)

'''
id = "RS-016"
name = "parallel burn"
attempt = """
Busy loops on 2 processes for 0.7 s: total CPU time above 1.3 x wall means more than one CPU. Two
times, because a busy host may not have two to give at once."""
severity = "medium"
proven_open = "user"
needs = ["two-processors"]
schedule = "alone"

[[expect]]
text = ["*.*/*.*"]
'''

import time


def burn():
    start = time.monotonic()
    deadline = start + 0.7
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            while time.monotonic() < deadline:
                pass
            os._exit(0)
        children.append(pid)
    cpu = 0
    for pid in children:
        usage = os.wait4(pid, 0)[2]
        cpu += usage.ru_utime + usage.ru_stime
    return cpu, time.monotonic() - start


def attempt():
    for _ in range(2):
        cpu, wall = burn()
        if cpu > 1.3 * wall * int(var("CPUS", "1")):
            escaped("%.1f cpu s in %.1f s" % (cpu, wall))
            return
    contained("%.1f/%.1f" % (cpu, wall))


run(attempt)

"""Times the Python client in the same run as the other measurements.

Each line of standard input has two counts, and is answered with two lines of times in nanoseconds: that
many of a cell in a live session, and that many of the creation of a sandbox with its session."""

import sys
import time

from sandfork import Policy, Sandbox

policy = Policy(python={"interpreter": sys.argv[1]})
live = Sandbox(policy=policy)
if live.run("6 * 7").value != 42:
    sys.exit("the session did not compute")


def call():
    start = time.perf_counter_ns()
    live.run("x = 1")
    return time.perf_counter_ns() - start


def create():
    # Waits until a worker is ready again, as for the sessions made from Rust.
    time.sleep(float(sys.argv[2]))
    start = time.perf_counter_ns()
    made = Sandbox(policy=policy)
    time_taken = time.perf_counter_ns() - start
    made.close()
    return time_taken


for line in iter(sys.stdin.readline, ""):
    cells, sessions = map(int, line.split())
    print(*[call() for _ in range(cells)], flush=True)
    print(*[create() for _ in range(sessions)], flush=True)

'''
id = "RS-007"
name = "wall-clock limit by sleeping"
attempt = "Sleep TIME_LIMIT+2 seconds (uses no CPU)."
severity = "critical"
proven_open = "user"
clock = "tight"

[[expect]]
status = ["timeout"]
exception = ["KeyboardInterrupt"]
'''

import time


def attempt():
    time.sleep(float(var("TIME_LIMIT", "2")) + 2)
    escaped("slept past the wall limit")


run(attempt)

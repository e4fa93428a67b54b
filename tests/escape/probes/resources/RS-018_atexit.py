'''
id = "RS-018"
name = "atexit handler overstays"
attempt = "Register an atexit handler that sleeps past the deadline."
severity = "high"
proven_open = "user"
clock = "tight"

[[expect]]
status = ["timeout"]
exception = ["KeyboardInterrupt"]
'''

import atexit
import time


def overstay():
    time.sleep(float(var("TIME_LIMIT", "2")) + 2)
    escaped("atexit overstayed")


def attempt():
    atexit.register(overstay)


run(attempt)

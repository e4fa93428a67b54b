'''
id = "RS-005"
name = "CPU limit"
attempt = "Burn CPU_LIMIT+2 seconds of CPU time in pure Python."
severity = "critical"
proven_open = "user"
set = ["limits.wall=60s"]
clock = "tight"

[[expect]]
status = ["cpu-limit"]
exception = ["KeyboardInterrupt"]
'''

import time


def attempt():
    limit = float(var("CPU_LIMIT", "2")) + 2
    while time.process_time() < limit:
        pass
    escaped("burned %.1f s" % time.process_time())


run(attempt)

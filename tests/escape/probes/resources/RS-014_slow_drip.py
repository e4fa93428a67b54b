'''
id = "RS-014"
name = "slow drip past the deadline"
attempt = "Print one byte every 50 ms to look alive to an idle timer."
severity = "high"
proven_open = "user"
clock = "tight"

[[expect]]
status = ["timeout"]
exception = ["KeyboardInterrupt"]
'''

import time


def attempt():
    deadline = time.monotonic() + float(var("TIME_LIMIT", "2")) + 2
    while time.monotonic() < deadline:
        os.write(1, b".")
        time.sleep(0.05)
    print()
    escaped("dripped past the deadline")


run(attempt)

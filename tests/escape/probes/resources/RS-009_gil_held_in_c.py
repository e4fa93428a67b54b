'''
id = "RS-009"
name = "hold the GIL in one C call"
attempt = "Catastrophic regular expression: an in-process timer cannot interrupt it."
severity = "high"
proven_open = "user"
clock = "tight"

[[expect]]
status = ["timeout", "cpu-limit"]
exception = ["KeyboardInterrupt"]
'''

import re
import time


def attempt():
    start = time.monotonic()
    limit = float(var("TIME_LIMIT", "2")) + 1
    length = 24
    while time.monotonic() - start < limit and length < 34:
        re.match(r"(a+)+$", "a" * length + "b")
        length += 1
    escaped("ran %.1f s inside C code" % (time.monotonic() - start))


run(attempt)

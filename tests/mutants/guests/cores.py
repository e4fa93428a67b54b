"""Prints the time of a busy guest. A quota makes it longer on a machine of any speed."""

import time

started, used = time.monotonic(), time.process_time()
while time.process_time() - used < 0.4:
    pass
# With a tenth of one processor at least 3.5 s, and without as long as the machine makes it wait.
print("took", "its share" if time.monotonic() - started > 2.5 else "more than its share")

"""Prints the time that a busy guest takes. A CPU quota makes it longer on a machine of any speed."""

import time

started, used = time.monotonic(), time.process_time()
while time.process_time() - used < 0.4:
    pass
# With a tenth of one processor at least 3.5 s; without a quota only as long as a loaded machine delays it.
print("took", "its share" if time.monotonic() - started > 2.5 else "more than its share")

'''
id = "SF-171"
name = "when the host was started"
attempt = "Ask the kernel's clocks, its files and times(2), and compare with the host."
severity = "low"
proven_open = "user"
not_promised = """
A time namespace hides it from the clocks and the files that programs read. times(2) has no such namespace, and the
processor's own counter tells it without the kernel. SECURITY.md says so."""

[[expect]]
text = ["another time"]
'''

import time


def moments():
    now = time.time()
    yield now - time.clock_gettime(time.CLOCK_BOOTTIME)
    # The kernel's tick counter starts five minutes before a 32-bit counter would overflow.
    for hertz in (100, 250, 300, 1000):
        yield now - (os.times().elapsed - ((1 << 32) - 300 * hertz) / hertz)


def attempt():
    host = float(var("STARTED_REAL"))
    found = [moment for moment in moments() if abs(moment - host) < 60]
    if found:
        escaped("%d seconds off" % (found[0] - host))
    else:
        contained("another time")


run(attempt)

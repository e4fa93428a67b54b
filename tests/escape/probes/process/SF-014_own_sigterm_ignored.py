'''
id = "SF-014"
name = "immune to its own SIGTERM"
attempt = """
Send itself SIGTERM with the default action: the first process of a pid namespace survives it,
and every other signal sent from inside that should end it."""
severity = "low"
proven_open = "user"
open_mode = "pid1"
needs = ["user-namespaces"]

[[expect]]
status = ["signal"]
'''

import signal
import time


def attempt():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)
    escaped("pid %d ignored SIGTERM" % os.getpid())


run(attempt)

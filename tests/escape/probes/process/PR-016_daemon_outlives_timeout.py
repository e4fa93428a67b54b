'''
id = "PR-016"
name = "daemon outlives the timeout"
attempt = """
Daemonise, then the main process overstays its time limit; daemon prints after TIME_LIMIT+2 s."""
severity = "critical"
proven_open = "user"
host_check = "nothing-survives"
clock = "tight"

[[expect]]
status = ["timeout"]
exception = ["KeyboardInterrupt"]
'''

import signal
import time


def attempt():
    limit = float(var("TIME_LIMIT", "2"))
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(limit + 2)
            escaped("daemon alive after the timeout")
        os._exit(0)
    time.sleep(limit + 1)
    contained("main was not killed yet")
    time.sleep(2)


run(attempt)

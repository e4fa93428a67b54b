'''
id = "SF-091"
name = "cut the tie to the parent"
attempt = """
prctl(PR_SET_PDEATHSIG, 0) in the main process and in a daemon: neither is killed when its parent ends. The daemon
prints after TIME_LIMIT+2 s."""
severity = "medium"
proven_open = "user"
host_check = "nothing-survives"
clock = "tight"

[[expect]]
status = ["timeout"]
exception = ["KeyboardInterrupt"]
'''

import time

PRCTL, OPTION = number(157, 167), 1


def attempt():
    limit = float(var("TIME_LIMIT", "2"))
    checked(PRCTL, OPTION, 0, 0, 0, 0)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            checked(PRCTL, OPTION, 0, 0, 0, 0)
            time.sleep(limit + 2)
            escaped("alive after the timeout, with no signal when the parent ends")
        os._exit(0)
    time.sleep(limit + 1)
    contained("main was not killed yet")
    time.sleep(2)


run(attempt)

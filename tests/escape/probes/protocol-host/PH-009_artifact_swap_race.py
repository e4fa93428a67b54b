'''
id = "PH-009"
name = "artifact swap race"
attempt = "Replace a regular file by a symlink to the canary 2000 times while the host collects."
severity = "critical"
proven_open = "user"
judge = "host"
host_check = "no-canary-collected"

[[expect]]
status = ["ok", "exit"]
text = ["racing"]
'''

import signal
import time


def attempt():
    contained("racing")
    if os.fork() == 0:
        signal.alarm(5)
        for _ in range(200000):
            try:
                with open("r.tmp", "w") as file:
                    file.write("ok")
                os.rename("r.tmp", "race.txt")
                os.symlink(var("CANARY"), "s.tmp")
                os.rename("s.tmp", "race.txt")
            except OSError:
                pass
        os._exit(0)
    time.sleep(0.3)
    os._exit(0)


run(attempt)

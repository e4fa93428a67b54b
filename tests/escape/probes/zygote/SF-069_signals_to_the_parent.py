'''
id = "SF-069"
name = "stop or kill what the worker depends on"
attempt = "Stop the parent; if it is an init, send it every signal. The next run must be served."
severity = "high"
proven_open = "user"
open_mode = "zygote"
runs = 2
through = "one-sandbox"

[[expect]]
text = ["sent"]
errno = ["EPERM", "ESRCH"]
'''

import signal
import time


def state(process):
    with open("/proc/%d/stat" % process) as file:
        return file.read().rpartition(")")[2].split()[0]


def attempt():
    parent = os.getppid() or 1
    os.kill(parent, signal.SIGSTOP)
    stopped = False
    try:
        for _ in range(20):
            stopped = state(parent) == "T"
            if stopped:
                break
            time.sleep(0.01)
    except OSError:
        pass
    os.kill(parent, signal.SIGCONT)
    if stopped:
        return escaped("stopped %d" % parent)
    for kind in range(1, 65):
        if parent == 1:
            os.kill(parent, kind)
    contained("sent")


run(attempt)

'''
id = "PR-018"
name = "bounded fork storm"
attempt = """
Fork NPROC (default 200) sleeping children and count how many live at once; all are killed at
the end."""
severity = "critical"
proven_open = "user"

[[expect]]
text = ["stopped at * Resource temporarily unavailable"]
'''

import signal
import time


def attempt():
    wanted = int(var("NPROC", "200"))
    children = []
    try:
        for _ in range(wanted):
            pid = os.fork()
            if pid == 0:
                time.sleep(8)
                os._exit(0)
            children.append(pid)
        escaped("%d processes at once" % len(children))
    except OSError as error:
        contained("stopped at %d %s" % (len(children), error.strerror))
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)


run(attempt)

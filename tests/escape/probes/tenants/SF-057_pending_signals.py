'''
id = "SF-057"
name = "leave the other no signals"
attempt = "One tenant has the maximum number of signals pending, and the other cannot queue any."
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
text = ["holds", "enough were left"]
'''

import ctypes
import resource
import signal

libc = ctypes.CDLL(None, use_errno=True)
# As many as a sandbox allows, so that the open control tests the same number.
MAX = 1024


def queue():
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (MAX, MAX))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    queued = 0
    while queued < 2 * MAX:
        if libc.sigqueue(os.getpid(), signal.SIGRTMIN, ctypes.c_void_p(0)) < 0:
            break
        queued += 1
    return queued


def hold():
    queue()
    contained("holds")


def visit():
    queued = queue()
    if queued < MAX // 2:
        escaped("only %d were left" % queued)
    else:
        contained("enough were left")


tenants(hold, visit)

'''
id = "SF-058"
name = "leave the other no descriptors to pass"
attempt = """
One tenant has the maximum number of descriptors in flight in sockets, and the other cannot pass any."""
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2
not_promised = """
The kernel counts them for the launching user, in all namespaces together. Root's guests have a uid each.
SECURITY.md says so."""
promised_of = "root"

[[expect]]
text = ["holds", "passed"]
'''

import array
import resource
import socket
import threading
import time

# As many as a sandbox allows, so that the open control tests the same number, and leaves some for
# other tests of this user.
MAX = 250
ETOOMANYREFS = 109
# Hundredths of a second to wait for other tests to release theirs.
PATIENCE = 500


def become_ordinary():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(MAX, hard), hard))
    # Root may have any number in flight.
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(58058, 58058, 58058)
        os.setresuid(58058, 58058, 58058)


def is_passed(pairs):
    """Whether the kernel takes some more."""
    pairs.append(socket.socketpair())
    few = array.array("i", [1] * 50)
    try:
        pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, few)])
    except OSError as error:
        if error.errno != ETOOMANYREFS:
            raise
        pairs.pop()
        return False
    return True


def keep_full():
    pairs = []
    while True:
        if not is_passed(pairs):
            time.sleep(0.01)


def hold():
    become_ordinary()
    threading.Thread(target=keep_full, daemon=True).start()
    contained("holds")


def visit():
    become_ordinary()
    for _ in range(PATIENCE):
        if not is_passed([]):
            return escaped("none can be passed")
        time.sleep(0.01)
    contained("passed")


tenants(hold, visit)

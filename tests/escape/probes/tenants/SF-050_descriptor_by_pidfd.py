'''
id = "SF-050"
name = "take a descriptor of the other's"
attempt = """
One tenant keeps a memory file open, and the other takes its descriptor by pidfd_getfd(2)."""
severity = "critical"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2
since = "6.3"

[[expect]]
errno = ["EPERM"]
text = ["holds"]
'''

PIDFD_OPEN, PIDFD_GETFD = 434, 438
MFD_NOEXEC_SEAL, WORD = 8, b"meet in memory"


def hold():
    file = os.memfd_create("sf050", os.MFD_CLOEXEC | MFD_NOEXEC_SEAL)
    os.write(file, WORD)
    print("VALUE %d %d" % (os.getpid(), file))
    contained("holds")


def visit():
    process, number = (int(word) for word in (var("PREV") or "1 3").split())
    taken = checked(PIDFD_GETFD, checked(PIDFD_OPEN, process, 0), number, 0)
    if os.pread(taken, 64, 0) == WORD:
        escaped("took it")


tenants(hold, visit)

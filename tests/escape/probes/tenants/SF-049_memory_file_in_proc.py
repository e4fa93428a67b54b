'''
id = "SF-049"
name = "open the other's memory file"
attempt = "One tenant keeps a memory file open, and the other opens it by its number in /proc."
severity = "critical"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2
since = "6.3"

[[expect]]
errno = ["ENOENT", "EACCES", "EPERM"]
text = ["holds"]
'''

MFD_NOEXEC_SEAL, WORD = 8, b"meet in memory"


def hold():
    file = os.memfd_create("sf049", os.MFD_CLOEXEC | MFD_NOEXEC_SEAL)
    os.write(file, WORD)
    # A number that is not open in the visitor.
    os.dup2(file, 49)
    print("VALUE %d" % os.getpid())
    contained("holds")


def visit():
    os.stat("/proc/self")
    with open("/proc/%s/fd/49" % (var("PREV") or "1"), "rb") as file:
        if file.read() == WORD:
            escaped("read it")


tenants(hold, visit)

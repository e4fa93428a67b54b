'''
id = "SF-146"
name = "leave the other small pipes"
attempt = """
One tenant has so many pipes that the kernel gives its user pipes of two pages from then on. The other
tenant, or the host, then blocks when it writes 64 KiB that are not read yet."""
severity = "medium"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2
not_promised = """
The kernel counts the pages of pipes for the launching user. Root's guests have a uid each. SECURITY.md
says so."""
promised_of = "root"

[[expect]]
text = ["holds", "65536 bytes"]
'''

import fcntl

F_GETPIPE_SZ = 1032
# fs.pipe-user-pages-soft is 16,384 pages, of which a pipe gets 16.
PROCESSES, PIPES = 12, 100


def become_ordinary():
    # Root may have any number of pages.
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(58146, 58146, 58146)
        os.setresuid(58146, 58146, 58146)


def hold():
    become_ordinary()
    ready, report = os.pipe()
    kept["end"] = os.pipe()
    for _ in range(PROCESSES):
        if os.fork() == 0:
            os.close(kept["end"][1])
            kept["pipes"] = [os.pipe() for _ in range(PIPES)]
            os.write(report, b".")
            # Until the tenant is gone.
            os.read(kept["end"][0], 1)
            os._exit(0)
    counted = 0
    while counted < PROCESSES:
        counted += len(os.read(ready, PROCESSES))
    contained("holds")


def visit():
    become_ordinary()
    reader, writer = os.pipe()
    size = fcntl.fcntl(writer, F_GETPIPE_SZ)
    if size < 65536:
        escaped(str(size) + " bytes")
    else:
        contained(str(size) + " bytes")


tenants(hold, visit)

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
import random
import time

F_GETPIPE_SZ = 1032
# fs.pipe-user-pages-soft is 16,384 pages. A pipe gets 16, or 2 beyond the limit. The pipes of the first WHOLE
# processes leave pages for other programs of the user; those of all the processes exceed the limit.
WHOLE, PROCESSES, PIPES = 8, 18, 100


def become_ordinary():
    # Root may have any number of pages.
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(58146, 58146, 58146)
        os.setresuid(58146, 58146, 58146)


def fill():
    """Whether each of the first processes has whole pipes: no other run of this probe has the user's pages."""
    ready, report = os.pipe()
    kept["end"] = os.pipe()
    for number in range(PROCESSES):
        if os.fork() == 0:
            os.close(kept["end"][1])
            kept["pipes"] = [os.pipe() for _ in range(PIPES)]
            sizes = [fcntl.fcntl(pipe[1], F_GETPIPE_SZ) for pipe in kept["pipes"]]
            os.write(report, b"." if number >= WHOLE or min(sizes) == 65536 else b"x")
            # Until the tenant has ended.
            os.read(kept["end"][0], 1)
            os._exit(0)
        if os.read(ready, 1) == b"x":
            return False
    return True


def hold():
    become_ordinary()
    # Two runs that kept their pages would wait for each other, so release everything and try again later.
    for _ in range(40):
        if fill():
            break
        os.close(kept["end"][1])
        try:
            while True:
                os.wait()
        except ChildProcessError:
            time.sleep(random.uniform(0.1, 1))
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

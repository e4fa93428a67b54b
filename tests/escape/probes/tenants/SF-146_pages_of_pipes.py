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
# fs.pipe-user-pages-soft is 16,384 pages, of which a pipe gets 16. The pipes of so many processes fill
# it nearly, and those of the others exceed it.
WHOLE, PROCESSES, PIPES = 10, 12, 100


def become_ordinary():
    # Root may have any number of pages.
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(58146, 58146, 58146)
        os.setresuid(58146, 58146, 58146)


def pipes(must_be_whole):
    """So many pipes; of 16 pages each, once no other run of this probe has the user's pages."""
    for _ in range(100):
        made = [os.pipe() for _ in range(PIPES)]
        if not must_be_whole or all(fcntl.fcntl(pipe[1], F_GETPIPE_SZ) == 65536 for pipe in made):
            break
        for end in sum(made, ()):
            os.close(end)
        time.sleep(random.uniform(0.1, 0.3))
    return made


def hold():
    become_ordinary()
    ready, report = os.pipe()
    kept["end"] = os.pipe()
    for number in range(PROCESSES):
        if os.fork() == 0:
            os.close(kept["end"][1])
            random.seed()
            kept["pipes"] = pipes(number < WHOLE)
            os.write(report, b".")
            # Until the tenant is gone.
            os.read(kept["end"][0], 1)
            os._exit(0)
        # One after the other: a pipe of two pages of a later one would leave too few for an earlier one.
        os.read(ready, 1)
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

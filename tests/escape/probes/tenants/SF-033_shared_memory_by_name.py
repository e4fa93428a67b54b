'''
id = "SF-033"
name = "meet in POSIX shared memory"
attempt = "One tenant creates a shared memory object by name, and the other maps it."
severity = "critical"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["ENOENT"]
text = ["holds"]
'''

import mmap

PATH = "/dev/shm/sandfork_sf033_%d" % os.getuid()
WORD = b"meet me here"


def hold():
    with open(PATH, "wb") as file:
        file.write(WORD)
    contained("holds")


def visit():
    with open(PATH, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        found = memory[: len(WORD)]
    os.unlink(PATH)
    if found == WORD:
        escaped("mapped what the other wrote")


tenants(hold, visit)

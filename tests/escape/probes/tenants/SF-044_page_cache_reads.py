'''
id = "SF-044"
name = "signal by what is in the page cache"
attempt = """
One tenant drops a page of a library from the page cache, and the other detects that with RWF_NOWAIT."""
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["EOPNOTSUPP", "EPERM"]
'''

import pydoc_data.topics as module

RWF_NOWAIT = 8


def resident(file):
    # A page that is not there is on its way once it was asked for, and may arrive at once: many pages are
    # asked for, one by one.
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    try:
        for place in range(0, os.fstat(file.fileno()).st_size, 4 * 4096):
            os.preadv(file.fileno(), [bytearray(1)], place, RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


def hold():
    with open(module.__file__, "rb") as file:
        file.read()
        before = resident(file)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    contained("it is " + ("in" if before else "out"))


def visit():
    with open(module.__file__, "rb") as file:
        if resident(file):
            contained("it is in")
        else:
            escaped("the other has dropped it")


tenants(hold, visit)

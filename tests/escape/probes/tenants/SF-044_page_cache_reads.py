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

import importlib.util

RWF_NOWAIT = 8
# Other runs of this probe read and drop the same files meanwhile, one at a time.
FILES = [
    importlib.util.find_spec(name).origin
    for name in ("pydoc_data.topics", "typing", "tarfile", "_pydecimal", "argparse", "inspect", "doctest")
]


def resident(file):
    # A read of a missing page starts its transfer, which may be over immediately. So many pages are read, one
    # by one.
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    try:
        for place in range(0, os.fstat(file.fileno()).st_size, 4 * 4096):
            os.preadv(file.fileno(), [bytearray(1)], place, RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


def hold():
    before = []
    for path in FILES:
        with open(path, "rb") as file:
            file.read()
            before.append(resident(file))
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    contained("in: " + str(sum(before)) + " of " + str(len(before)))


def visit():
    for path in FILES:
        with open(path, "rb") as file:
            if not resident(file):
                escaped("the other has dropped " + path)
    contained("they are in")


tenants(hold, visit)

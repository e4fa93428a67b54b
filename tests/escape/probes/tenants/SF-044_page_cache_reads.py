'''
id = "SF-044"
name = "signal by what is in the page cache"
attempt = """
One tenant drops a page of a library from the page cache, and the other sees by RWF_NOWAIT that it
is gone."""
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


def size(file):
    return os.fstat(file.fileno()).st_size // 8192 * 4096


def resident(file):
    try:
        return bool(os.preadv(file.fileno(), [bytearray(1)], size(file), RWF_NOWAIT))
    except BlockingIOError:
        return False


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

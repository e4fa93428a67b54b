'''
id = "SF-046"
name = "ask what others have read, of a file of one's own"
attempt = """
Map a shown file of the same user, and ask mincore(2) which of its pages another tenant has read."""
severity = "medium"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 3
set = ["filesystem.read=[\"{SHARED}\"]"]

[[expect]]
errno = ["EPERM"]
text = ["read"]
'''

import ctypes
import mmap

MINCORE = number(27, 232)


def resident():
    with open(var("SHARED"), "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE)
    pages = (ctypes.c_ubyte * (len(memory) // mmap.PAGESIZE))()
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    checked(MINCORE, at, ctypes.c_size_t(len(memory)), pages)
    return sum(page & 1 for page in pages)


def hold():
    with open(var("SHARED"), "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    print("VALUE %d" % resident())
    contained("holds")


def visit():
    with open(var("SHARED"), "rb") as file:
        file.read()
    contained("read")


def look():
    pages = resident()
    if pages > 200:
        escaped("the other has read %d pages" % pages)
    else:
        contained("nothing to be seen")


tenants(hold, visit, look)

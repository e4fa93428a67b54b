'''
id = "SF-045"
name = "ask what others have read"
attempt = """
One tenant drops a page of a shown file and reads it again, and the other asks cachestat(2) whether the
page is cached."""
severity = "medium"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2
since = "6.5"
set = ["filesystem.read=[\"{SHARED}\"]"]

[[expect]]
errno = ["EPERM"]
'''

import ctypes

CACHESTAT = 451


def cached(file):
    wanted = (ctypes.c_uint64 * 2)(0, 1 << 30)
    counts = (ctypes.c_uint64 * 5)()
    checked(CACHESTAT, file.fileno(), wanted, counts, 0)
    return counts[0]


def hold():
    with open(var("SHARED"), "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.read()
        print("VALUE %d" % cached(file))
    contained("holds")


def visit():
    with open(var("SHARED"), "rb") as file:
        escaped("%d pages of it are cached" % cached(file))


tenants(hold, visit)

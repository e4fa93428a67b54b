'''
id = "SF-085"
name = "list the mounts without /proc"
attempt = "listmount(2) of the root: every mount of the namespace, for statmount(2)."
severity = "medium"
proven_open = "user"
since = "6.8"

[[expect]]
errno = ["EPERM"]
'''

import ctypes

ROOT = 0xFFFFFFFFFFFFFFFF


def attempt():
    request = (ctypes.c_uint64 * 3)(24, ROOT, 0)
    found = (ctypes.c_uint64 * 64)()
    escaped("%d mounts" % checked(458, request, found, ctypes.c_size_t(64), 0))


run(attempt)

'''
id = "SF-094"
name = "flags of a file that the host cannot remove"
attempt = "FS_IOC_SETFLAGS on its own file: with more privilege it could become immutable."
severity = "medium"
proven_open = "user"
needs = ["file-flags"]

[[expect]]
errno = ["ENOTTY"]
'''

import ctypes
import fcntl

GETFLAGS, SETFLAGS, NODUMP = 0x80086601, 0x40086602, 0x40


def attempt():
    with open("flagged", "w") as file:
        flags = ctypes.c_long()
        fcntl.ioctl(file, GETFLAGS, flags)
        flags.value |= NODUMP
        fcntl.ioctl(file, SETFLAGS, flags)
    escaped("flags %#x" % flags.value)


run(attempt)

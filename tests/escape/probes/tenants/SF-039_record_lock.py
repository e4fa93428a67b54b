'''
id = "SF-039"
name = "meet at a record lock on a file that both are shown"
attempt = """
One tenant takes a read lock on one byte of a module of the standard library; the other asks which process
blocks a write lock."""
severity = "low"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["ENOLCK"]
'''

import fcntl
import sched as module
import struct

F_GETLK = 5
LOCK = "hhqqi4x"


def lock(file, command, kind, byte):
    request = struct.pack(LOCK, kind, os.SEEK_SET, byte, 1, 0)
    return struct.unpack(LOCK, fcntl.fcntl(file, command, request))[0]


def hold():
    kept["file"] = open(module.__file__)
    lock(kept["file"], fcntl.F_SETLK, fcntl.F_RDLCK, 39)
    contained("holds")


def visit():
    with open(module.__file__) as file:
        # A query for a write lock does not need a descriptor that is open for writing.
        if lock(file, F_GETLK, fcntl.F_WRLCK, 39) == fcntl.F_UNLCK:
            contained("not locked")
        else:
            escaped("locked by the other")


tenants(hold, visit)

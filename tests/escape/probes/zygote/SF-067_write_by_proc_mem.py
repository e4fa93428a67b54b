'''
id = "SF-067"
name = "write into that memory by /proc"
attempt = "Write into the parent's memory by its file in /proc, where the next run reads it."
severity = "critical"
proven_open = "user"
open_mode = "zygote"
runs = 2
through = "one-sandbox"

[[expect]]
errno = ["EACCES", "EPERM", "ENOENT", "EROFS"]
'''

import ctypes
import sys


def place():
    """Where the text of `sys.version` lies: in every worker where it does in its zygote."""
    head = ctypes.string_at(id(sys.version), 96)
    return id(sys.version) + head.index(sys.version[:8].encode())


def write(process, address, data):
    with open("/proc/%d/mem" % process, "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(data)


def attempt():
    if sys.version.startswith("?"):
        return escaped("an earlier run has written here")
    write(os.getppid() or 1, place(), b"?")
    contained("written")


run(attempt)

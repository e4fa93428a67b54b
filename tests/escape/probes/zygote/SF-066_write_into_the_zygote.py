'''
id = "SF-066"
name = "write into the memory that workers are forked from"
attempt = "Write into the parent's memory by process_vm_writev(2), where the next run reads it."
severity = "critical"
proven_open = "user"
open_mode = "zygote"
runs = 2
through = "one-sandbox"

[[expect]]
errno = ["EPERM"]
'''

import ctypes
import sys


def place():
    """Where the text of `sys.version` lies: in every worker where it does in its zygote."""
    head = ctypes.string_at(id(sys.version), 96)
    return id(sys.version) + head.index(sys.version[:8].encode())


def write(process, address, data):
    text = ctypes.create_string_buffer(data)
    here = (ctypes.c_uint64 * 2)(ctypes.addressof(text), len(data))
    there = (ctypes.c_uint64 * 2)(address, len(data))
    checked(number(311, 271), process, here, 1, there, 1, 0)


def attempt():
    if sys.version.startswith("?"):
        return escaped("an earlier run has written here")
    write(os.getppid() or 1, place(), b"?")
    contained("written")


run(attempt)

'''
id = "SF-066"
name = "write into the memory that workers are forked from"
attempt = "Write into the parent's memory with process_vm_writev(2), where the next run reads it."
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


def write(process, address, data):
    text = ctypes.create_string_buffer(data)
    here = (ctypes.c_uint64 * 2)(ctypes.addressof(text), len(data))
    there = (ctypes.c_uint64 * 2)(address, len(data))
    checked(number(311, 271), process, here, 1, there, 1, 0)


def attempt():
    if sys.version.startswith("?"):
        return escaped("an earlier run has written here")
    write(os.getppid() or 1, address_of_version(), b"?")
    contained("written")


run(attempt)

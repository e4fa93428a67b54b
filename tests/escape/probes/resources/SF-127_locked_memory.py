'''
id = "SF-127"
name = "memory that cannot be reclaimed"
attempt = "mlock(2) of 1 MiB."
severity = "medium"
proven_open = "user"
needs = ["locked-memory"]

[[expect]]
errno = ["ENOMEM", "EPERM"]
'''

import ctypes
import mmap

SIZE = 1 << 20


def attempt():
    memory = mmap.mmap(-1, SIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    checked(number(149, 228), address, ctypes.c_size_t(SIZE))
    escaped("locked")


run(attempt)

'''
id = "SF-098"
name = "merge pages with those of others"
attempt = """
madvise(MADV_MERGEABLE): a write to a merged page is slow, which reveals that another process has it."""
severity = "medium"
proven_open = "user"
needs = ["merged-pages"]

[[expect]]
errno = ["EINVAL"]
'''

import ctypes
import mmap

MADVISE, MERGEABLE = number(28, 233), 12


def attempt():
    memory = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    checked(MADVISE, address, ctypes.c_size_t(4096), MERGEABLE)
    escaped("may be merged")


run(attempt)

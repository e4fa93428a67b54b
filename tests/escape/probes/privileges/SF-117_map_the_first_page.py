'''
id = "SF-117"
name = "map the first page"
attempt = "mmap(2) at address 0, which a null pointer dereference in the kernel would reach."
severity = "medium"
proven_open = "root"
needs = ["first-page-kept"]

[[expect]]
errno = ["EPERM", "EACCES"]
'''

import ctypes
import mmap

MAP_FIXED = 0x10


def attempt():
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
    call = number(9, 222)
    result, code = syscall(call, None, ctypes.c_size_t(4096), mmap.PROT_READ, flags, -1, 0)
    if result == 0:
        escaped("mapped")
    else:
        contained(errno_name(code))


run(attempt)

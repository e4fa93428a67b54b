'''
id = "SF-122"
name = "write to code that is not writable"
attempt = "Change the C library's code through /proc/self/mem, which ignores page protection."
severity = "medium"
proven_open = "user"

[[expect]]
errno = ["EACCES", "EROFS", "ENOENT"]
'''

import ctypes


def attempt():
    libc = ctypes.CDLL(None)
    address = ctypes.cast(libc.getpid, ctypes.c_void_p).value
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(ctypes.string_at(address, 1))
    escaped("written")


run(attempt)

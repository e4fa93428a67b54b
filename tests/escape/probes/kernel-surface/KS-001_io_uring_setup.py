'''
id = "KS-001"
name = "io_uring_setup"
attempt = "Create a ring: io_uring operations never pass through seccomp."
severity = "critical"
refs = "CVE-2022-2602"
proven_open = "user"
needs = ["io-uring"]

[[expect]]
errno = ["ENOSYS", "EPERM"]
'''

import ctypes


def attempt():
    params = (ctypes.c_ubyte * 120)()
    result, code = syscall(425, 4, ctypes.byref(params))
    if result >= 0:
        escaped("ring fd %d" % result)
    else:
        contained(errno_name(code))


run(attempt)

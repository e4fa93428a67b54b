'''
id = "SF-089"
name = "answer system calls in the kernel's place"
attempt = "Install a seccomp filter with a listener: its holder decides what calls return."
severity = "high"
proven_open = "user"
since = "5.0"

[[expect]]
errno = ["EPERM"]
'''

import ctypes

NO_NEW_PRIVS, MODE_FILTER, NEW_LISTENER = 38, 1, 8
# Allow all: BPF_RET of SECCOMP_RET_ALLOW.
FILTER = (ctypes.c_uint32 * 2)(0x06, 0x7FFF0000)


def attempt():
    program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(FILTER))
    checked(number(157, 167), NO_NEW_PRIVS, 1, 0, 0, 0)
    escaped("descriptor %d" % checked(number(317, 277), MODE_FILTER, NEW_LISTENER, program))


run(attempt)

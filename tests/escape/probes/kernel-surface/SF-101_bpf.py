'''
id = "SF-101"
name = "programs in the kernel"
attempt = "bpf(BPF_MAP_CREATE): the first step to a program in the kernel."
severity = "critical"
proven_open = "root"

[[expect]]
errno = ["EPERM"]
'''

import ctypes


def attempt():
    wanted = (ctypes.c_uint32 * 8)(2, 4, 4, 1)
    escaped("map %d" % checked(number(321, 280), 0, wanted, 32))


run(attempt)

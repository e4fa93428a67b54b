'''
id = "SF-102"
name = "measure with the kernel"
attempt = """
perf_event_open(2) of its own processor time: a large part of the kernel with many past fixes."""
severity = "high"
proven_open = "root"

[[expect]]
errno = ["EPERM"]
'''

import ctypes

SOFTWARE, TASK_CLOCK, SIZE = 1, 1, 112
EXCLUDE_KERNEL_AND_HYPERVISOR = 0b1100000


def attempt():
    wanted = ctypes.create_string_buffer(SIZE)
    ctypes.memmove(wanted, (ctypes.c_uint32 * 4)(SOFTWARE, SIZE, TASK_CLOCK, 0), 16)
    wanted[40] = EXCLUDE_KERNEL_AND_HYPERVISOR
    counter = checked(number(298, 241), wanted, 0, -1, -1, 0)
    escaped("counter %d" % counter)


run(attempt)

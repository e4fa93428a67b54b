'''
id = "SF-113"
name = "a real-time class"
attempt = "sched_setscheduler(SCHED_FIFO): no other process would run on the processor."
severity = "high"
proven_open = "root"

[[expect]]
errno = ["EPERM"]
'''

import ctypes

FIFO = 1


def attempt():
    priority = ctypes.c_int(1)
    checked(number(144, 119), 0, FIFO, ctypes.byref(priority))
    escaped("policy %d" % checked(number(145, 120), 0))


run(attempt)

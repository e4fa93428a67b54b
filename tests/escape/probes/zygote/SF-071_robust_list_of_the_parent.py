'''
id = "SF-071"
name = "ask where the parent keeps its locks"
attempt = "get_robust_list(2) of the parent reveals an address in its memory."
severity = "medium"
proven_open = "user"
open_mode = "zygote"

[[expect]]
errno = ["EPERM", "ESRCH"]
'''

import ctypes


def attempt():
    head, length = ctypes.c_size_t(), ctypes.c_size_t()
    parent = os.getppid() or 1
    checked(number(274, 100), parent, ctypes.byref(head), ctypes.byref(length))
    escaped("at %#x" % head.value)


run(attempt)

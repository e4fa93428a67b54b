'''
id = "SF-087"
name = "segments of its own"
attempt = "modify_ldt(2): old kernel code that no Python program needs."
severity = "medium"
proven_open = "user"
needs = ["x86"]

[[expect]]
errno = ["EPERM"]
'''

import ctypes


def attempt():
    table = ctypes.create_string_buffer(64)
    escaped("read %d bytes" % checked(154, 0, table, ctypes.c_ulong(64)))


run(attempt)

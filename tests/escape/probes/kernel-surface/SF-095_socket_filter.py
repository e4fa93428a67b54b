'''
id = "SF-095"
name = "a program for the kernel on a socket"
attempt = "Attach a classic BPF filter to a socket."
severity = "high"
proven_open = "user"

[[expect]]
errno = ["EPERM"]
'''

import ctypes
import socket

SO_ATTACH_FILTER = 26


def attempt():
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    instruction = (ctypes.c_uint32 * 2)(0x06, 0xFFFF)
    program = bytes((ctypes.c_uint64 * 2)(1, ctypes.addressof(instruction)))
    near.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    escaped("attached")


run(attempt)

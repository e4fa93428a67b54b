'''
id = "SF-036"
name = "meet at a POSIX message queue"
attempt = "One tenant sends a message to a queue that it created by name, and the other receives it."
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["EPERM"]
'''

import ctypes

MQ_OPEN, MQ_UNLINK = number(240, 180), number(241, 181)
MQ_SEND, MQ_RECEIVE = number(242, 182), number(243, 183)
NAME = ctypes.c_char_p(b"sandfork_sf036_%d" % os.getuid())
ATTRIBUTES = (ctypes.c_long * 8)(0, 1, 8)


def hold():
    flags = os.O_CREAT | os.O_RDWR | os.O_NONBLOCK
    queue = checked(MQ_OPEN, NAME, flags, 0o600, ctypes.byref(ATTRIBUTES))
    checked(MQ_SEND, queue, ctypes.c_char_p(b"meet"), 4, 0, None)
    contained("holds")


def visit():
    queue = checked(MQ_OPEN, NAME, os.O_RDWR | os.O_NONBLOCK, 0, None)
    text = ctypes.create_string_buffer(8)
    checked(MQ_RECEIVE, queue, text, 8, None, None)
    checked(MQ_UNLINK, NAME)
    escaped("took %r" % text.value)


tenants(hold, visit)

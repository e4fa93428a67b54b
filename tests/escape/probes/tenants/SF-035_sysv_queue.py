'''
id = "SF-035"
name = "meet at a System V queue"
attempt = "One tenant sends a message to a queue that it created by key, and the other receives it."
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["EPERM"]
'''

import ctypes

KEY = 0x5F035000 | os.getuid() & 0xFFF
MSGGET, MSGSND, MSGRCV, MSGCTL = number(68, 186), number(69, 189), number(70, 188), number(71, 187)
IPC_CREAT, IPC_NOWAIT, IPC_RMID = 0o1000, 0o4000, 0


class Message(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_long), ("text", ctypes.c_char * 8)]


def hold():
    queue = checked(MSGGET, KEY, IPC_CREAT | 0o600)
    checked(MSGSND, queue, ctypes.byref(Message(1, b"meet")), 8, IPC_NOWAIT)
    contained("holds")


def visit():
    queue = checked(MSGGET, KEY, 0)
    message = Message()
    checked(MSGRCV, queue, ctypes.byref(message), 8, 0, IPC_NOWAIT)
    checked(MSGCTL, queue, IPC_RMID, None)
    escaped("took %r" % message.text)


tenants(hold, visit)

'''
id = "SF-096"
name = "out of band on a UNIX socket"
attempt = "send(2) with MSG_OOB: rarely used code that allowed an escape from Chrome's sandbox."
severity = "high"
proven_open = "user"
refs = "CVE-2025-38236"
since = "5.15"

[[expect]]
errno = ["EOPNOTSUPP"]
'''

import socket


def attempt():
    near, far = socket.socketpair()
    near.send(b"x", socket.MSG_OOB)
    escaped("sent")


run(attempt)

'''
id = "NE-011"
name = "AF_VSOCK"
attempt = "Create an AF_VSOCK socket (reaches the hypervisor, ignores netns)."
severity = "high"
refs = "CVE-2025-21756"
proven_open = "user"

[[expect]]
errno = ["EPERM", "EAFNOSUPPORT"]
'''

import socket

AF_VSOCK = 40


def attempt():
    socket.socket(AF_VSOCK, socket.SOCK_STREAM)
    escaped("vsock socket")


run(attempt)

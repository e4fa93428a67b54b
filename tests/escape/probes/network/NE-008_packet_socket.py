'''
id = "NE-008"
name = "packet socket"
attempt = "socket(AF_PACKET, SOCK_RAW)."
severity = "high"
proven_open = "root"

[[expect]]
errno = ["EPERM", "EAFNOSUPPORT"]
'''

import socket

AF_PACKET = 17


def attempt():
    socket.socket(AF_PACKET, socket.SOCK_RAW)
    escaped("AF_PACKET")


run(attempt)

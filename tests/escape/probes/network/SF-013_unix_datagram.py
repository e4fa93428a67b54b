'''
id = "SF-013"
name = "datagram to a UNIX socket of the host"
attempt = "Send one datagram to the host's socket by path."
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ENOENT", "EACCES", "EPERM"]
'''

import socket


def attempt():
    client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    client.sendto(b"x", var("UDSOCK"))
    escaped("sent")


run(attempt)

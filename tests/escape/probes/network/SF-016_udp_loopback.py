'''
id = "SF-016"
name = "UDP to host loopback"
attempt = "Send a datagram to 127.0.0.1:PORT and wait for the answer."
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ECONNREFUSED", "ENETUNREACH", "EPERM"]
'''

import socket


def attempt():
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(20)
    client.connect(("127.0.0.1", int(var("PORT", "1"))))
    client.send(b"x")
    escaped("answered %r" % client.recv(16))


run(attempt)

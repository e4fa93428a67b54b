'''
id = "NE-001"
name = "TCP to host loopback"
attempt = "connect 127.0.0.1:PORT."
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ECONNREFUSED", "ENETUNREACH", "EPERM"]
'''

import socket


def attempt():
    connection = socket.create_connection(("127.0.0.1", int(var("PORT", "1"))), 2)
    escaped("connected, got %r" % connection.recv(16))


run(attempt)

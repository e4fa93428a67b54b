'''
id = "NE-003"
name = "IPv6 loopback"
attempt = "connect [::1]:PORT."
severity = "critical"
proven_open = "user"
needs = ["ipv6-loopback"]

[[expect]]
errno = ["ENETUNREACH", "EADDRNOTAVAIL", "EPERM"]
'''

import socket


def attempt():
    socket.create_connection(("::1", int(var("PORT", "1"))), 2)
    escaped("connected over IPv6")


run(attempt)

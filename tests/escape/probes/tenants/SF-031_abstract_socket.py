'''
id = "SF-031"
name = "meet at an abstract socket"
attempt = "One tenant listens on an abstract UNIX socket, and the other connects to it."
severity = "critical"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["ECONNREFUSED", "EPERM"]
text = ["holds"]
'''

import socket

NAME = "\0sandfork_sf031"


def hold():
    kept["socket"] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    kept["socket"].bind(NAME)
    kept["socket"].listen()
    contained("holds")


def visit():
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(NAME)
    escaped("connected")


tenants(hold, visit)

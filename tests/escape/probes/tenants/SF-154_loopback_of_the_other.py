'''
id = "SF-154"
name = "meet at a port"
attempt = "With `network.mode = loopback`, one tenant listens on a port, and the other connects to it and binds it."
severity = "critical"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2
set = ["network.mode=loopback"]

[[expect]]
text = ["holds", "refused, and the port is free"]
'''

import socket

ADDRESS = ("127.0.0.1", 28154)


def hold():
    kept["socket"] = socket.create_server(ADDRESS)
    contained("holds")


def visit():
    try:
        socket.create_connection(ADDRESS, 5).close()
    except ConnectionRefusedError:
        pass
    else:
        return escaped("connected")
    try:
        socket.create_server(ADDRESS).close()
    except OSError as error:
        return escaped("the port is taken: " + errno_name(error.errno))
    contained("refused, and the port is free")


tenants(hold, visit)

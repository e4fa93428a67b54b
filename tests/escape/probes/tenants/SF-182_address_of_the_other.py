'''
id = "SF-182"
name = "meet at an address of the resolver's"
attempt = "With `network.mode = allow`, one tenant listens at an address like those of allowed hosts, and the other connects to it and binds it."
severity = "critical"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2
set = ["network.mode=allow", "network.allow=[\"a.example\"]"]

[[expect]]
text = ["holds", "refused, and the port is free"]
'''

import socket

ADDRESS = ("127.1.0.9", 28182)


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

'''
id = "SF-144"
name = "signal by an abstract name that is taken"
attempt = "One tenant binds an abstract name, and the other gets EADDRINUSE."
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
text = ["holds", "the name is free"]
'''

import socket

NAME = "\0sandfork_sf144"


def hold():
    kept["socket"] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    kept["socket"].bind(NAME)
    contained("holds")


def visit():
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as own:
        try:
            own.bind(NAME)
        except OSError as error:
            escaped("the name is taken: " + errno_name(error.errno))
        else:
            contained("the name is free")


tenants(hold, visit)

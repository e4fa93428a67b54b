'''
id = "SF-145"
name = "list the sockets of another tenant"
attempt = """
Read /proc/self/net/unix, which names the abstract sockets of every process in the network namespace."""
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
text = ["holds", "not listed"]
errno = ["ENOENT", "EACCES"]
'''

import socket

NAME = "sandfork_sf145"


def hold():
    kept["socket"] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    kept["socket"].bind("\0" + NAME)
    contained("holds")


def visit():
    with open("/proc/self/net/unix") as table:
        listed = NAME in table.read()
    if listed:
        escaped("it is listed")
    else:
        contained("not listed")


tenants(hold, visit)

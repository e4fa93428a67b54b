'''
id = "SF-032"
name = "meet at a socket in /tmp"
attempt = "One tenant listens on a UNIX socket in /tmp, and the other connects to it."
severity = "critical"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["ENOENT"]
text = ["holds"]
'''

import socket

PATH = "/tmp/sandfork_sf032_%d" % os.getuid()


def hold():
    if os.path.exists(PATH):
        os.unlink(PATH)
    kept["socket"] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    kept["socket"].bind(PATH)
    kept["socket"].listen()
    contained("holds")


def visit():
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(PATH)
    escaped("connected")
    os.unlink(PATH)


tenants(hold, visit)

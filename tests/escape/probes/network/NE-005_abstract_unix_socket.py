'''
id = "NE-005"
name = "abstract UNIX socket"
attempt = "connect to the abstract bait socket of the host."
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ECONNREFUSED", "EPERM"]
'''

import socket


def attempt():
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(2)
    client.connect("\0" + var("ASOCK", "sandfork_bait"))
    escaped("connected")


run(attempt)

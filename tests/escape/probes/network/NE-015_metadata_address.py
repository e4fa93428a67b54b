'''
id = "NE-015"
name = "route to the cloud metadata address"
attempt = "UDP connect() to 169.254.169.254 (no packet is sent)."
severity = "critical"
proven_open = "user"
needs = ["default-route"]

[[expect]]
errno = ["ENETUNREACH", "EPERM"]
'''

import socket


def attempt():
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(("169.254.169.254", 80))
    escaped("route via %s" % client.getsockname()[0])


run(attempt)

'''
id = "SF-181"
name = "have a route beyond the host"
attempt = "With `network.mode = allow`, look for a route to an address that the policy does not name."
severity = "critical"
proven_open = "user"
needs = ["default-route"]
set = ["network.mode=allow", "network.allow=[\"a.example\"]"]

[[expect]]
errno = ["ENETUNREACH"]
'''

import socket


def attempt():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        try:
            # Nothing is sent: the kernel finds a route, or none.
            stream.connect(("203.0.113.1", 9))
        except OSError as error:
            contained(errno_name(error.errno))
        else:
            escaped("a route from " + stream.getsockname()[0])


run(attempt)

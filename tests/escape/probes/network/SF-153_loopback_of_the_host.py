'''
id = "SF-153"
name = "reach the host's loopback from a loopback"
attempt = "With `network.mode = loopback`, connect to a service on 127.0.0.1 of the host."
severity = "critical"
proven_open = "user"
set = ["network.mode=loopback"]

[[expect]]
errno = ["ECONNREFUSED"]
'''

import socket


def attempt():
    try:
        with socket.create_connection(("127.0.0.1", int(var("PORT"))), 5) as client:
            answer = client.recv(64)
    except OSError as error:
        contained(errno_name(error.errno))
    else:
        escaped("connected: %r" % answer)


run(attempt)

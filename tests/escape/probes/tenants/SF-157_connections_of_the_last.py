'''
id = "SF-157"
name = "find what the last tenant's connections left"
attempt = "With `network.mode = loopback`, a tenant leaves a port taken for a minute, and the next one finds it taken."
severity = "high"
proven_open = "user"
through = "one-sandbox"
runs = 2
set = ["network.mode=loopback"]

[[expect]]
text = ["the port was free"]
'''

import socket

ADDRESS = ("127.0.0.1", 28157)


def attempt():
    server = socket.socket()
    try:
        server.bind(ADDRESS)
    except OSError as error:
        return escaped("taken: " + errno_name(error.errno))
    server.listen()
    client = socket.create_connection(ADDRESS)
    served, _ = server.accept()
    # The side that closes first keeps the port.
    served.close()
    client.recv(1)
    client.close()
    server.close()
    contained("the port was free")


run(attempt)

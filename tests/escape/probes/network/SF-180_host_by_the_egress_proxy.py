'''
id = "SF-180"
name = "reach the host's loopback by the way to allowed hosts"
attempt = "With `network.mode = allow`, connect to a service on 127.0.0.1 of the host: directly, and by the proxy in every spelling."
severity = "critical"
proven_open = "user"
set = ["network.mode=allow", "network.allow=[\"a.example\", \"*.b.example\"]"]

[[expect]]
errno = ["ECONNREFUSED"]
'''

import socket

PROXY = ("127.1.0.1", 3128)
SPELLINGS = (
    "127.0.0.1 127.1 2130706433 0x7f000001 0177.0.0.1 [::1] [::ffff:127.0.0.1] [64:ff9b::7f00:1] [2002:7f00:1::] "
    "localhost a.example.localhost"
).split()


def through(request):
    try:
        with socket.create_connection(PROXY, 5) as stream:
            stream.sendall(request)
            return stream.recv(64)
    except OSError:
        return b""


def attempt():
    port = int(var("PORT"))
    for host in SPELLINGS:
        target = "%s:%d" % (host, port)
        head = "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target)
        url = "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target)
        for request in head, url:
            answer = through(request.encode())
            if answer.startswith(b"HTTP/1.1 200"):
                return escaped("by the proxy to %s: %r" % (host, answer))
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            answer = client.recv(64)
    except OSError as error:
        contained(errno_name(error.errno))
    else:
        escaped("connected: %r" % answer)


run(attempt)

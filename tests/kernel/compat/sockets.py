import selectors
import socket
import socketserver
import threading

ours, theirs = socket.socketpair()
theirs.sendall(b"pair")
assert ours.recv(10) == b"pair"
with selectors.DefaultSelector() as selector:
    selector.register(ours, selectors.EVENT_READ)
    assert selector.select(0) == []
    theirs.sendall(b"!")
    assert len(selector.select(1)) == 1


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline())


with socketserver.UnixStreamServer("/work/socket", Echo) as server:
    threading.Thread(target=server.handle_request).start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("/work/socket")
        client.sendall(b"echo\n")
        assert client.makefile().read() == "echo\n"

# A missing network is an ordinary error that code is prepared to handle.
for family in (socket.AF_INET, socket.AF_INET6):
    try:
        with socket.socket(family) as outside:
            outside.settimeout(1)
            outside.connect(("127.0.0.1" if family == socket.AF_INET else "::1", 80))
    except OSError:
        pass
    else:
        raise AssertionError("connected")
try:
    socket.getaddrinfo("example.org", 80)
except OSError:
    pass
assert socket.gethostname()

"""Servers on loopback addresses for guests to reach, and a resolver that maps names of `example` to them.

Prints the ports as one line of JSON and serves until its standard input ends. `GET /log` of the HTTP server returns
the names that were queried and the requests that arrived.
"""

import http.server
import json
import socket
import socketserver
import ssl
import sys
import threading

LOOPBACK = "127.0.0.1"
# Names that resolve to other addresses, which are returned in turn.
ELSEWHERE = {
    "metadata.example": ["169.254.169.254"],
    "nowhere.example": ["0.0.0.0"],
    "rebinding.example": [LOOPBACK, "169.254.169.254"],
}
MAPPED = {"mapped.example": "::ffff:127.0.0.1", "tunnel.example": "2002:7f00:1::1", "translated.example": "64:ff9b::7f00:1"}

log = {"names": [], "requests": []}
turns = {}


def records(name, kind):
    if name in MAPPED:
        return [socket.inet_pton(socket.AF_INET6, MAPPED[name])] if kind == 28 else []
    if kind != 1:
        return []
    addresses = ELSEWHERE.get(name, [LOOPBACK])
    turns[name] = turns.get(name, -1) + 1
    return [socket.inet_pton(socket.AF_INET, addresses[turns[name] % len(addresses)])]


class Resolver(socketserver.BaseRequestHandler):
    def handle(self):
        message, reply = self.request
        labels, place = [], 12
        while message[place]:
            labels.append(message[place + 1 : place + 1 + message[place]].decode())
            place += 1 + message[place]
        name, kind = ".".join(labels), int.from_bytes(message[place + 1 : place + 3], "big")
        log["names"].append(name)
        question = message[12 : place + 5]
        known = name.endswith("example")
        answers = records(name, kind) if known else []
        flags = b"\x81\x80" if known else b"\x81\x83"
        head = message[:2] + flags + b"\0\1" + len(answers).to_bytes(2, "big") + b"\0\0\0\0"
        record = b"\xc0\x0c" + kind.to_bytes(2, "big") + b"\0\1\0\0\0\0"
        body = b"".join(record + len(data).to_bytes(2, "big") + data for data in answers)
        reply.sendto(head + question + body, self.client_address)


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen = {"method": self.command, "path": self.path, "headers": dict(self.headers.items()), "body": len(body)}
        told = json.dumps(log if self.path == "/log" else seen).encode()
        if self.path != "/log":
            log["requests"].append(seen)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, *_):
        pass


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Threads(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        """Ignores errors, because guests close connections early."""


class Names(socketserver.ThreadingUDPServer):
    daemon_threads = True


def main():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[1])
    servers = {
        "resolver": Names((LOOPBACK, 0), Resolver),
        "http": Threads((LOOPBACK, 0), Answers),
        "https": Threads((LOOPBACK, 0), Answers),
        "echo": Threads((LOOPBACK, 0), Echo),
    }
    https = servers["https"]
    https.socket = tls.wrap_socket(https.socket, server_side=True, do_handshake_on_connect=False)
    for server in servers.values():
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({name: server.server_address[1] for name, server in servers.items()}), flush=True)
    sys.stdin.read()


main()

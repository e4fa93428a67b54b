# Typical uses of TCP and UDP, each in one function.
import asyncio
import http.server
import socket
import socketserver
import sys
import threading
import urllib.request
from multiprocessing.managers import BaseManager


def asyncio_streams():
    async def main():
        async def answer(reader, writer):
            writer.write((await reader.readline()).upper())
            writer.close()

        server = await asyncio.start_server(answer, "localhost", 0)
        for bound in server.sockets:
            host, port = bound.getsockname()[:2]
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"hello\n")
            assert await reader.read() == b"HELLO\n"
            writer.close()
        server.close()
        await server.wait_closed()
        return len(server.sockets or ()) == 0

    assert asyncio.run(main())


def http_and_urllib():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.path.encode())

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = "http://localhost:%d/a/path" % server.server_port
        with urllib.request.urlopen(url, timeout=20) as answer:
            assert answer.read() == b"/a/path"
        server.shutdown()


def threads_of_socketserver():
    class Echo(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                self.wfile.write(line)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def talk(number):
            with socket.create_connection(server.server_address) as client, client.makefile("rwb") as file:
                file.write(b"%d\n" % number)
                file.flush()
                said.append(int(file.readline()))

        said = []
        clients = [threading.Thread(target=talk, args=(number,)) for number in range(10)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert sorted(said) == list(range(10)), said
        server.shutdown()


def datagrams():
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as one, socket.socket(family, socket.SOCK_DGRAM) as two:
            one.bind((host, 0))
            two.sendto(b"datagram", one.getsockname()[:2])
            text, sender = one.recvfrom(99)
            one.sendto(text.upper(), sender)
            assert two.recv(99) == b"DATAGRAM"


def ipv6():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        with socket.create_connection(server.getsockname()[:2]) as client:
            accepted, _ = server.accept()
            with accepted:
                client.sendall(b"six")
                assert accepted.recv(9) == b"six"
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        socket.create_connection(("127.0.0.1", server.getsockname()[1])).close()


def names():
    found = {entry[4][0] for entry in socket.getaddrinfo("localhost", 80)}
    assert found == {"127.0.0.1", "::1"}, found
    try:
        socket.getaddrinfo("example.org", 80)
    except socket.gaierror:
        pass
    else:
        raise AssertionError("a name of the internet has an address")


class Manager(BaseManager):
    pass


def doubled(number):
    return [2 * number]


Manager.register("doubled", doubled)


def managers():
    # A forked process has the functions of `__main__`.
    manager = Manager(("127.0.0.1", 0), b"key")
    import multiprocessing

    manager._ctx = multiprocessing.get_context("fork")
    manager.start()
    try:
        other = Manager(manager.address, b"key")
        other.connect()
        assert list(other.doubled(21)._getvalue()) == [42]
    finally:
        manager.shutdown()


def options():
    with socket.socket() as stream:
        for level, option in (
            (socket.SOL_SOCKET, socket.SO_REUSEADDR),
            (socket.SOL_SOCKET, socket.SO_REUSEPORT),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            (socket.IPPROTO_TCP, socket.TCP_NODELAY),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            (socket.IPPROTO_IP, socket.IP_TTL),
        ):
            stream.setsockopt(level, option, 1)
            assert stream.getsockopt(level, option) >= 1, option
        # These options are accepted, but have no effect.
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            before = stream.getsockopt(socket.SOL_SOCKET, option)
            stream.setsockopt(socket.SOL_SOCKET, option, 8 << 20)
            assert stream.getsockopt(socket.SOL_SOCKET, option) == before, option


def nothing_further():
    for address in (("192.0.2.1", 80), ("169.254.169.254", 80), ("10.0.0.1", 53)):
        try:
            socket.create_connection(address, 5).close()
        except OSError as error:
            assert error.errno == 101, error
        else:
            raise AssertionError("connected to %s:%d" % address)
    with open("/proc/self/net/dev") as table:
        assert [line.split(":")[0].strip() for line in table.readlines()[2:]] == ["lo"]


for test in (
    asyncio_streams,
    http_and_urllib,
    threads_of_socketserver,
    datagrams,
    ipv6,
    names,
    managers,
    options,
    nothing_further,
):
    test()
    print(test.__name__)

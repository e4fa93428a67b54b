"""Clients with and without support for proxies, against a plain HTTP server and one with TLS."""

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import urllib.request

HTTP, HTTPS, ECHO = PORTS
SERVERS = ["http://api.example:%d/a?b=c" % HTTP, "https://tls.example:%d/a?b=c" % HTTPS]
PROXIES = [name for name in os.environ if name.lower().endswith("_proxy")]


def check(client, body):
    seen = json.loads(body)
    assert (seen["method"], seen["path"]) == ("GET", "/a?b=c"), seen
    print(client)


def by_urllib():
    for url in SERVERS:
        check("urllib", urllib.request.urlopen(url).read())


def by_http_client():
    plain = http.client.HTTPConnection("api.example", HTTP)
    secure = http.client.HTTPSConnection("tls.example", HTTPS)
    for connection in plain, secure:
        for _ in range(3):
            connection.request("GET", "/a?b=c")
            check("http.client", connection.getresponse().read())


def by_sockets():
    stream = socket.create_connection(("raw.example", ECHO))
    for size in 1, 1000, 1 << 20:
        data = os.urandom(size)
        stream.sendall(data)
        received = b""
        while len(received) < size:
            received += stream.recv(1 << 20)
        assert received == data
    print("socket")


def by_program(*command):
    if shutil.which(command[0]):
        for url in SERVERS:
            check(command[0], subprocess.run([*command, url], check=True, stdout=subprocess.PIPE).stdout)


# The fetch of Node.js ignores the usual proxy variables, so it connects to the name directly here.
FETCH = "fetch(process.argv[1]).then(r => r.text()).then(t => console.log(t)).catch(e => { console.error(e); process.exit(1) })"

for proxies in True, False:
    by_urllib()
    by_http_client()
    by_sockets()
    by_program("curl", "--silent", "--show-error", "--fail")
    by_program("node", "-e", FETCH)
    for name in PROXIES:
        os.environ.pop(name, None)
if shutil.which("curl"):
    version = ["curl", "--silent", "--output", "/dev/null", "--write-out", "curl speaks HTTP/%{http_version}\n"]
    subprocess.run([*version, SERVERS[1]], check=True)

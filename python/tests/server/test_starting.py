"""How a server is started: with a certificate, and by systemd."""

from __future__ import annotations

import datetime
import fcntl
import http.client
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
from typing import Any

import pytest

from sandfork import _binary

from ..support.waiting import eventually
from .support import Server

# `fcntl.F_SETPIPE_SZ`, which Python 3.9 lacks.
_SET_PIPE_SIZE = 1031


def _certificate(directory: pathlib.Path) -> pathlib.Path:
    """Writes a certificate of this machine and its key."""
    if sys.version_info < (3, 11):
        pytest.skip("cryptography is installed for Python 3.11 and later")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "certificate.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (directory / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    return path


def _config(directory: pathlib.Path) -> str:
    path = directory / "server.toml"
    path.write_text("[tls]\ncertificate = 'certificate.pem'\nkey = 'key.pem'\n[http]\nhead = '3s'\n")
    return str(path)


def test_connections_are_encrypted(start: Any, tmp_path: pathlib.Path) -> None:
    trusted = _certificate(tmp_path)
    server: Server = start("--config", _config(tmp_path))
    context = ssl.create_default_context(cafile=str(trusted))
    connection = http.client.HTTPSConnection("localhost", server.port, timeout=60, context=context)
    connection.request("POST", "/run_code", b'{"code": "print(1)"}')
    assert b"Success" in connection.getresponse().read()
    connection.close()
    # The server disconnects a client that starts no TLS handshake, and one that does not complete it.
    each = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(2)]
    each[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
    for plain in each:
        with plain:
            assert not plain.recv(4096).startswith(b"HTTP")


def test_invalid_certificate_is_named(tmp_path: pathlib.Path) -> None:
    command = [_binary.find(), "server", "--check", "--config", _config(tmp_path)]
    (tmp_path / "certificate.pem").write_text("none")
    for name in ("certificate.pem", "key.pem"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert f"{name}: " in done.stderr
        if name == "certificate.pem":
            _certificate(tmp_path)
            (tmp_path / "key.pem").unlink()


def test_systemd_passes_the_socket_and_is_notified(tmp_path: pathlib.Path) -> None:
    notified = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears, socket.socket() as listens:
        hears.bind(str(notified))
        hears.settimeout(60)
        listens.bind(("127.0.0.1", 0))
        listens.listen()
        # `exec` keeps the process id of this process for the server.
        script = (
            "import os, sys\nos.dup2(int(sys.argv[1]), 3)\n"
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')\n"
            "os.execv(sys.argv[2], sys.argv[2:])"
        )
        command = [sys.executable, "-c", script, str(listens.fileno()), _binary.find(), "server"]
        environment = {**os.environ, "NOTIFY_SOCKET": str(notified), "SANDFORK_LOG": "off"}
        fds = (listens.fileno(),)
        with subprocess.Popen(command, pass_fds=fds, env=environment, stdout=subprocess.DEVNULL) as process:
            assert hears.recv(4096) == b"READY=1\n"
            server = Server(process, listens.getsockname()[1])
            assert server.run("6 * 7").json["value"] == 42
            process.terminate()
            assert hears.recv(4096) == b"STOPPING=1\n"


def test_a_hangup_before_the_port_is_open_does_not_end_the_server(real: None) -> None:
    command = [_binary.find(), "server", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        tasks = pathlib.Path(f"/proc/{process.pid}/task")
        # The server starts the warm interpreter.
        eventually(lambda: any(children.read_text() for children in tasks.glob("*/children")))
        process.send_signal(signal.SIGHUP)
        assert "serving on http" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_unread_log_blocks_no_request() -> None:
    command = [_binary.find(), "server", "--listen", "127.0.0.1:0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        server = Server(process, int(process.stdout.readline().rpartition(":")[2]))
        fcntl.fcntl(process.stderr, _SET_PIPE_SIZE, 4096)
        for _ in range(200):
            assert server.ask("GET", "/v1/sessions").status == 200
        process.terminate()
        # The server does not wait for a reader when it ends either.
        assert process.wait(60) == 0
        assert len(process.stderr.read()) <= 4096

"""Guests that connect to hosts of their policy: a server of the test, in this process."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

import sandfork
from sandfork import Policy, PolicyError, Sandbox


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["X-Key"].encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def _policy(port: int) -> Policy:
    return Policy(
        network={
            "mode": "allow",
            "allow": [
                {
                    # The host's own name for itself: no resolver is asked.
                    "host": "db.localhost",
                    "ports": [port],
                    "private": True,
                    "credential": {"header": "X-Key", "value": "key ${SANDFORK_TEST_KEY}"},
                }
            ],
        }
    )


def test_a_cell_reports_its_connections(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDFORK_TEST_KEY", "of-the-caller")
    fetch = f"import urllib.request\nurllib.request.urlopen('http://db.localhost:{port}/').read().decode()"
    with Sandbox(policy=_policy(port)) as sandbox:
        execution = sandbox.run(fetch)
        assert execution.value == "key of-the-caller", execution
        (connection,) = execution.network
        assert (connection.host, connection.port, connection.verdict) == ("db.localhost", port, "allowed")
        assert connection.address == "127.0.0.1"
        assert execution.usage.received_bytes == connection.received > 0
        refused = sandbox.run("import urllib.request\nurllib.request.urlopen('http://other.example/')")
        assert refused.status == "exception"
        assert [(it.host, it.verdict, it.reason) for it in refused.network] == [
            ("other.example", "refused", "host")
        ]
        assert refused.to_dict()["network"][0]["reason"] == "host"
        assert sandbox.run("1").network == ()


def test_a_secret_that_is_not_set_is_named(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDFORK_TEST_KEY", raising=False)
    with pytest.raises((PolicyError, sandfork.HostError), match="SANDFORK_TEST_KEY"):
        Sandbox(policy=_policy(port)).run("1")

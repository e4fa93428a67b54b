"""Guests that connect to hosts that their policy allows. The host is a server in this process."""

from __future__ import annotations

import asyncio
import http.server
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import sandfork
from sandfork import AsyncSandbox, Policy, PolicyError, Sandbox


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


def _policy(port: int, **network: Any) -> Policy:
    return Policy(
        network={
            **network,
            "mode": "allow",
            "allow": [
                {
                    # A `localhost` name, which needs no resolver.
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
        (denial,) = (it for it in refused.to_dict()["network"] if it["verdict"] != "allowed")
        assert (denial["host"], denial["verdict"], denial["reason"]) == ("other.example", "refused", "host")


def test_caller_decides_on_connections(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDFORK_TEST_KEY", "of-the-caller")
    fetch = f"import urllib.request\nurllib.request.urlopen('http://db.localhost:{port}/').status"
    asked: list[tuple[str, int, tuple[str, ...]]] = []
    answers: list[object] = [True, False, OSError("no"), "yes", None]

    def decide(host: str, port: int, addresses: tuple[str, ...]) -> object:
        asked.append((host, port, addresses))
        answer = answers[len(asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    with Sandbox(policy=_policy(port), on_connect=decide) as sandbox:
        assert sandbox.run(fetch).value == 200
        reasons = []
        for _ in answers[1:]:
            refused = sandbox.run(fetch)
            assert refused.status == "exception"
            # The host may still be ending the connection of the cell before.
            reasons += [it.reason for it in refused.network if it.verdict != "allowed"]
        assert reasons == ["caller"] + ["undecided"] * 3
        (denial,) = (it for it in refused.denied if it.operation == "connect")
        assert denial.set == "network.ask=false"
        # The function is not asked about a connection that the policy refuses.
        sandbox.run("import urllib.request\nurllib.request.urlopen('http://other.example/')")
    assert asked == [("db.localhost", port, asked[0][2])] * len(answers)
    assert "127.0.0.1" in asked[0][2]
    # Without a function there is no decision, and nothing to wait for.
    with Sandbox(policy=_policy(port, ask=True)) as sandbox:
        assert [it.reason for it in sandbox.run(fetch).network] == ["undecided"]


def test_no_decision_is_requested_after_the_cell_has_ended(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDFORK_TEST_KEY", "of-the-caller")
    code = f"""
import threading, time, urllib.request
def fetch():
    urllib.request.urlopen('http://db.localhost:{port}/')
for _ in range(9):
    threading.Thread(target=fetch, daemon=True).start()
time.sleep(600)
"""
    asked: list[str] = []

    def decide(host: str, port: int, addresses: tuple[str, ...]) -> bool:
        asked.append(host)
        # Longer than the cell runs.
        time.sleep(3)
        return True

    with Sandbox(policy=_policy(port), on_connect=decide) as sandbox:
        assert sandbox.run(code, timeout=2).status == "timeout"
    assert len(asked) <= 1


def test_a_coroutine_decides_on_connections(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDFORK_TEST_KEY", "of-the-caller")
    fetch = f"import urllib.request\nurllib.request.urlopen('http://db.localhost:{port}/').status"

    async def decide(host: str, port: int, addresses: tuple[str, ...]) -> bool:
        await asyncio.sleep(0)
        return host == "db.localhost"

    async def never(host: str, port: int, addresses: tuple[str, ...]) -> bool:
        await asyncio.Event().wait()
        return True

    async def run() -> None:
        async with AsyncSandbox(policy=_policy(port), on_connect=decide) as sandbox:
            assert (await sandbox.run(fetch)).value == 200
        async with AsyncSandbox(policy=_policy(port), on_connect=never) as sandbox:
            refused = await sandbox.run(fetch)
            assert [it.reason for it in refused.network] == ["undecided"]

    asyncio.run(run())
    with Sandbox(policy=_policy(port), on_connect=decide) as sandbox:
        assert sandbox.run(fetch).value == 200


def test_a_secret_that_is_not_set_is_named(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDFORK_TEST_KEY", raising=False)
    with pytest.raises((PolicyError, sandfork.HostError), match="SANDFORK_TEST_KEY"):
        Sandbox(policy=_policy(port)).run("1")

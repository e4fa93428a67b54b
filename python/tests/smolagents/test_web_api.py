"""The example of the one web API that an agent may call, with hostile code and with a hostile service."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sandfork.smolagents import CodeError, NativeExecutor

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "python"))

from web_api import MAX_ANSWER, WebApi
from web_api_service import KEY, serving


class Service:
    """A service on a loopback port that answers each connection with these bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.ended = threading.Event()

    def serve(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            with connection:
                if self.ended.is_set():
                    return
                self.asked.append(connection.recv(65536))
                # The client may have disconnected once it had read enough.
                with suppress(OSError):
                    connection.sendall(self.answer)
                if not self.answer:
                    self.ended.wait()


@contextmanager
def service(answer: bytes) -> Iterator[Service]:
    made = Service(answer)
    thread = threading.Thread(target=made.serve)
    thread.start()
    try:
        yield made
    finally:
        made.ended.set()
        socket.create_connection(made.listener.getsockname()).close()
        thread.join()
        made.listener.close()


def answer(body: bytes, status: str = "200 OK", header: str = "X: y") -> bytes:
    return f"HTTP/1.1 {status}\r\n{header}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def executor(base: str, **options: Any) -> Iterator[NativeExecutor]:
    made = NativeExecutor(**options)
    try:
        made.send_tools({"weather_api": WebApi(base, KEY, {"/forecast": "of a `city`"})})
        yield made
    finally:
        made.cleanup()


def test_code_gets_the_response_but_never_the_key() -> None:
    with serving() as base, executor(base) as run:
        got = run("weather_api('/forecast', {'city': 'Rome'})").output
        assert got == {"city": "Rome", "celsius": 19}
        seen = run("import os\nstr(dict(os.environ)) + str(globals()) + str(vars(weather_api))").output
        assert KEY not in seen
        with pytest.raises(CodeError, match="RuntimeError: the service answered 404"):
            run("weather_api('/forecast', {'city': 'Nowhere'})")


@pytest.mark.parametrize(
    "arguments",
    [
        "'/admin', {}",
        "'/forecast/../admin', {}",
        "'/forecast?city=Oslo', {}",
        "'//other.example/forecast', {}",
        "'http://other.example/forecast', {}",
        "'@other.example/forecast', {}",
        "'/forecast\\r\\nHost: other', {}",
        "['/forecast'], {}",
        "None, {}",
        "'/forecast', 'city=Oslo'",
        "'/forecast', {'city': ['Oslo']}",
        "'/forecast', {'city': object()}",
        "'/forecast', {'city': 'x' * 3000}",
    ],
)
def test_code_cannot_choose_an_address(arguments: str) -> None:
    with service(answer(b"{}")) as other, executor(other.address) as run:
        with pytest.raises(CodeError, match="ValueError: "):
            run(f"weather_api({arguments})")
        assert other.asked == []


def test_a_parameter_stays_one_parameter() -> None:
    with service(answer(b"[1]")) as other, executor(other.address) as run:
        assert run("weather_api('/forecast', {'city': 'a&b=c#\\r\\nX: y'})").output == [1]
        (asked,) = other.asked
        assert asked.startswith(b"GET /forecast?city=a%26b%3Dc%23%0D%0AX%3A+y HTTP/1.1\r\n")


def test_code_has_no_network() -> None:
    with service(answer(b"{}")) as other, executor(other.address) as run:
        with pytest.raises(CodeError, match="URLError"):
            run(f"import urllib.request\nurllib.request.urlopen({other.address!r})")
        assert other.asked == []


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 T", "308 P"])
def test_a_redirect_is_not_followed(status: str) -> None:
    with service(answer(b'"secret of the network"')) as inner:
        moved = answer(b"", status, f"Location: {inner.address}/forecast")
        told = pytest.raises(CodeError, match=f"the service answered {status[:3]}")
        with service(moved) as outer, executor(outer.address) as run, told:
            run("weather_api('/forecast', {})")
        assert inner.asked == []


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with service(answer(b'"of the proxy"')) as proxy, service(answer(b'"direct"')) as direct:
        monkeypatch.setenv("http_proxy", proxy.address)
        with executor(direct.address) as run:
            assert run("weather_api('/forecast', {})").output == "direct"
        assert proxy.asked == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (answer(b"no JSON"), "the answer is no JSON"),
        (answer(b"[" * 100_000), "the answer is no JSON"),
        (answer(b"\xff\xfe"), "the answer is no JSON"),
        (answer(b"1" * (MAX_ANSWER + 1)), "the answer is longer than"),
        (answer(b"x", "500 Failed"), "the service answered 500"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[1", "the answer is no JSON"),
        (b"SSH-2.0-OpenSSH\r\n", "the service gave no answer"),
        (b"\r\n", "the service gave no answer"),
    ],
)
def test_service_failure_reveals_neither_key_nor_address(said: bytes, told: str) -> None:
    with service(said) as other, executor(other.address) as run:
        with pytest.raises(CodeError, match=told) as failed:
            run("weather_api('/forecast', {})")
        assert KEY not in str(failed.value)
        assert "127.0.0.1" not in str(failed.value)
        assert run("1 + 1").output == 2


def test_slow_service_reaches_the_call_timeout() -> None:
    late = pytest.raises(CodeError, match="TimeoutError")
    with service(b"") as slow, executor(slow.address, tool_timeout=0.2) as run, late:
        run("weather_api('/forecast', {})")


def test_many_calls_reach_the_budget() -> None:
    spent = pytest.raises(CodeError, match="budget")
    with serving() as base, executor(base, tool_budget=3) as run, spent:
        run("for n in range(9): weather_api('/forecast', {'city': 'Oslo'})")

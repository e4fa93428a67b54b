"""Use under gevent and eventlet, which replace Python's sockets and the functions of `select`."""

from __future__ import annotations

import os
import select
import socket
from typing import Any

import pytest

import sandfork
from sandfork import Sandbox, _stdin, _supervisor

from .support.fake import FakeSession, FakeSupervisor
from .support.wire import Received


class GreenSocket:
    """A socket as gevent's: its descriptor never waits. The socket ignores flags such as MSG_DONTWAIT and
    waits in an event loop, unless it was set not to wait."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self._waits = True
        real.setblocking(False)

    def setblocking(self, flag: bool) -> None:
        self._waits = flag

    def _now(self, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except BlockingIOError:
            assert not self._waits, "the event loop would wait"
            raise

    def recv(self, *args: Any) -> bytes:
        return self._now(self._real.recv, *args)

    def recvmsg(self, *args: Any) -> Any:
        return self._now(self._real.recvmsg, *args)

    def send(self, *args: Any) -> int:
        return self._now(self._real.send, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.fixture
def green(fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives sessions sockets of gevent."""

    def connect() -> _supervisor.Connection:
        ours, theirs = socket.socketpair()
        fake.attach(theirs)
        return _supervisor.Connection(GreenSocket(ours), None)  # type: ignore[arg-type]

    monkeypatch.setattr(_supervisor, "connect", connect)


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM])
def test_supervisor_end_blocks_despite_nonblocking_sockets(
    kind: socket.SocketKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = socket.socketpair
    monkeypatch.setattr(socket, "socketpair", lambda *of: tuple(map(GreenSocket, pair(*of))))
    ours, theirs = _supervisor._pair(kind)
    assert (os.get_blocking(ours.fileno()), os.get_blocking(theirs.fileno())) == (False, True)
    ours.close()
    theirs.close()


def test_an_idle_connection_is_open_without_waiting() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (GreenSocket(ours), ours):
            assert _supervisor._is_open(end)  # type: ignore[arg-type]
        assert ours.getblocking()
        theirs.close()
        assert not _supervisor._is_open(GreenSocket(ours))  # type: ignore[arg-type]


@pytest.mark.parametrize("has_poll", [True, False])
@pytest.mark.usefixtures("green")
def test_sessions_wait_only_in_functions_of_select(
    has_poll: bool, fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_poll:
        monkeypatch.delattr(select, "poll")

    def ask(session: FakeSession, cell: Received) -> None:
        session.outcome(cell, value=session.call("f", "x" * 100_000))

    fake.on("ask", ask)
    with Sandbox(tools={"f": len}) as sbx:
        assert sbx.run("ask").value == 100_000
        # More than the socket buffers, so that the write must wait.
        assert sbx.run(f"len({'y' * 2_000_000!r})").value == 2_000_000
    with pytest.raises(KeyError), Sandbox(tools={"f": len}) as sbx:
        sbx.run("print(1)", on_stdout={}.__getitem__)


@pytest.mark.parametrize("has_poll", [True, False])
def test_long_input_never_blocks_in_write(
    has_poll: bool, fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_poll:
        monkeypatch.delattr(select, "poll")
    before = set(_stdin._writers)
    reader = _stdin.piped(b"x" * 300_000)
    (writer,) = _stdin._writers - before
    assert (os.get_blocking(writer), os.get_blocking(reader)) == (False, True)
    with open(reader, "rb") as file:
        assert len(file.read()) == 300_000
    assert sandfork.run("len(stdin)", stdin="y" * 300_000).value == 300_000

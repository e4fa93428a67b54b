"""Programs of a session, with a supervisor whose answers the test chooses."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import sandfork
from sandfork import AsyncSandbox, Sandbox, _programs

from .support.fake import FakeSession, FakeSupervisor
from .support.wire import Received


@pytest.fixture
def fake(fake: FakeSupervisor) -> FakeSupervisor:
    """A supervisor whose sessions have programs."""
    fake.on("open", lambda session, request: session.opened(session=7))
    for kind in ("program", "attach"):
        fake.on(kind, lambda session, request: session.wire.send({"kind": "started", "pid": 3}))
    fake.on("programs", lambda session, request: session.wire.send({"kind": "programs", "programs": []}))
    return fake


def ends(session: FakeSession, request: Received) -> None:
    session.wire.send({"kind": "ended", "end": "exited", "code": 0})


def test_input_continues_after_an_interrupted_wait(
    fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_programs, "CHUNK", 4)
    taken: list[bytes] = []

    def take(session: FakeSession, request: Received) -> None:
        if not taken:
            session.output("printed")
        taken.append(request.payload)
        session.wire.send({"kind": "accepted", "id": request.header["id"]})
        if request.header["end"]:
            ends(session, request)

    def fail(text: str) -> None:
        raise LookupError(text)

    fake.on("input", take)
    with Sandbox() as sbx:
        command = sbx.commands.run(["cat"], stdin="0123456789", background=True, on_stdout=fail)
        with pytest.raises(LookupError):
            command.wait()
        assert command.wait().ok
    assert taken == [b"0123", b"4567", b"89"]


async def test_input_continues_after_a_cancelled_wait(
    fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_programs, "CHUNK", 4)
    taken: list[Received] = []
    sent = threading.Event()

    def accept(session: FakeSession, request: Received) -> None:
        session.wire.send({"kind": "accepted", "id": request.header["id"]})
        if request.header["end"]:
            ends(session, request)

    def take(session: FakeSession, request: Received) -> None:
        taken.append(request)
        sent.set()
        if len(taken) > 1:
            accept(session, request)

    fake.on("input", take)
    async with AsyncSandbox() as sbx:
        command = await sbx.commands.run(["cat"], stdin="0123456789", background=True)
        waiting = asyncio.ensure_future(command.wait())
        await asyncio.to_thread(sent.wait, 60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        accept(fake.sessions[-1], taken[0])
        assert (await command.wait()).ok
    assert [request.payload for request in taken] == [b"0123", b"4567", b"89"]


@pytest.mark.parametrize(
    ("code", "kind"), [("request", None), ("system", sandfork.SystemFailure), ("busy", sandfork.SessionBusy)]
)
def test_only_a_closed_pipe_ends_the_input(fake: FakeSupervisor, code: str, kind: Any) -> None:
    def refuse(session: FakeSession, request: Received) -> None:
        session.error(code, "the sentence", request.header["id"])
        ends(session, request)

    fake.on("input", refuse)
    with Sandbox() as sbx:
        command = sbx.commands.run(["cat"], stdin="x", background=True)
        if kind is not None:
            with pytest.raises(kind, match="the sentence"):
                command.wait()
        assert command.wait().ok


def test_request_for_an_ended_program_is_rejected(fake: FakeSupervisor) -> None:
    for kind in ("input", "signal", "size"):
        fake.on(kind, ends)
    with Sandbox() as sbx:
        command = sbx.commands.run(["cat"], stdin=True, background=True)
        acts: list[Any] = [command.kill, command.close_stdin, lambda: command.send_stdin("x" * 100_000)]
        for act in (*acts, lambda: command.resize(1, 1), lambda: sbx.commands.kill(3)):
            with pytest.raises(sandfork.RequestError, match="the program has ended"):
                act()
        fake.on("signal", lambda session, request: session.wire.send({"kind": "file", "id": 1}))
        with pytest.raises(sandfork.ProtocolError):
            command.kill()


def test_handles_of_programs_that_have_ended_are_not_kept(fake: FakeSupervisor) -> None:
    with Sandbox() as sbx:
        for _ in range(200):
            pid = len(fake.sessions)
            fake.on("program", lambda session, _, pid=pid: session.wire.send({"kind": "started", "pid": pid}))
            sbx.commands.run(["true"], background=True)
            assert len(sbx.commands._known) <= 64

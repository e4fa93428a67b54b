"""Callers that are interrupted while their session is copied or its state is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest

from sandfork import AsyncSandbox, Sandbox, Tool, _conversation
from sandfork._conversation import Actions, Interrupt, Notify, Send
from sandfork._link import Link
from sandfork._session import Session

from .support.fake import FakeSession, FakeSupervisor
from .support.waiting import eventually
from .support.wire import Received
from .test_conversation import OPENED, OUTCOME, Script, opened


@pytest.fixture
def leaves() -> Iterator[None]:
    """SIGALRM interrupts this thread."""

    def leave(number: int, frame: types.FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, leave)
    yield
    signal.signal(signal.SIGALRM, before)


def snapshot_when_interrupted(session: FakeSession, request: Received) -> None:
    """A snapshot that completes after its caller was interrupted."""
    caller = threading.main_thread().ident or 0
    # Waits until the caller receives: an interrupt while it sends would break the connection.
    eventually(lambda: sys._current_frames()[caller].f_code is Link._receive.__code__)
    os.kill(os.getpid(), signal.SIGALRM)
    assert session.interrupted.wait(60)
    session.wire.send({"kind": "snapshot", "id": request.header["id"], "snapshot": 7, "bytes": 1})


def test_a_signal_during_a_snapshot_keeps_the_session(fake: FakeSupervisor, leaves: None) -> None:
    fake.on("snapshot", snapshot_when_interrupted)
    with Sandbox() as sbx:
        sbx.run("x = 1")
        for copy in (sbx.snapshot, sbx.fork, lambda: sbx.pause("/tmp/never")):
            fake.session.interrupted.clear()
            with pytest.raises(KeyboardInterrupt):
                copy()
            assert sbx.run("x").value == 1


def left(made: Session, request: Actions[Any]) -> Script:
    """The actions after the caller of this request is interrupted once it was sent."""
    script = Script(request)
    script(Send)
    script.conversation.close()
    settling = Script(made.settle())
    settling(Interrupt)
    return settling


def test_snapshot_of_a_cancelled_caller_is_discarded() -> None:
    made = opened()
    settling = left(made, made.snapshot())
    settling.receive({"kind": "snapshot", "id": 1, "snapshot": 7, "bytes": 1})
    notified: Any = settling(Notify)
    assert notified.args == (7, made.supervisor)
    assert (settling.result, made.under_way) == (True, 0)


def test_rollback_of_a_cancelled_caller_is_completed() -> None:
    made = opened()
    made.ended = "its worker is gone"
    settling = left(made, made.rollback(7, 3, {"f": Tool("f", print, doc="", signature="")}))
    settling.receive({**OPENED, "id": 1})
    # The tool was added after the snapshot.
    assert settling.sent()["kind"] == "tools"
    settling.receive({**OUTCOME, "id": 2})
    assert (settling.result, made.ended, made.named) == (True, None, 3)


@pytest.mark.parametrize("request_kind", ["snapshot", "pause", "rollback"])
def test_an_error_settles_a_copy(request_kind: str) -> None:
    made = opened()
    request = made.rollback(7, 3, {}) if request_kind == "rollback" else getattr(made, request_kind)()
    settling = left(made, request)
    settling.receive({"kind": "error", "id": 1, "error": "request", "message": "no"})
    assert (settling.result, made.ended) == (True, None)


def test_copy_has_a_longer_grace_period_than_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_conversation, "_GRACE", 0.0)
    made = opened()
    settling = left(made, made.pause())
    settling.receive({"kind": "output", "id": 1, "stream": "stdout"}, b"from a thread")
    settling.receive({"kind": "accepted", "id": 1})
    assert settling.result is True


async def test_a_cancelled_snapshot_keeps_the_session(fake: FakeSupervisor) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def snapshot(session: FakeSession, request: Received) -> None:
        loop.call_soon_threadsafe(asked.set)
        assert session.interrupted.wait(60)
        session.wire.send({"kind": "snapshot", "id": request.header["id"], "snapshot": 7, "bytes": 1})

    fake.on("snapshot", snapshot)
    async with AsyncSandbox() as sbx:
        await sbx.run("x = 1")
        copying = asyncio.create_task(sbx.snapshot())
        await asyncio.wait_for(asked.wait(), 60)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert (await sbx.run("x")).value == 1

"""Signal handlers and finalizers, which may run before any bytecode. If one raises, the session continues
or is lost, and a guest's bytes are never read as a supervisor's message. If one opens or closes
sandboxes, it does not wait."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Callable

import pytest

import sandfork
from sandfork import (
    AsyncSandbox,
    Sandbox,
    _async,
    _blobs,
    _calls,
    _conversation,
    _driver,
    _frames,
    _link,
    _session,
    _supervisor,
)

from .support.fake import USAGE, FakeSession, FakeSupervisor
from .support.races import AlarmClock, Place
from .support.wire import Received, frame

# The functions that receive bytes and frames, and those that use them.
EXACT = (_frames, _link)
SHARED = (_blobs, _calls, _conversation, _driver, _session)
HEAD = frame({"kind": "output", "id": 0, "stream": "stdout"}, b"")


def forged() -> bytes:
    """Frames that a guest forges for the client: an answer to its first request, and one to the next."""
    outcome = {"status": "ok", "usage": USAGE}
    ends = {"kind": "outcome", "id": 3, "value": "forged", "session": "live", "outcome": outcome}
    return frame({"kind": "error"}) + frame(ends)


@pytest.fixture
def flooding(fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch) -> FakeSupervisor:
    """A supervisor of a guest that forges frames, and a client that reads the head of each frame before the
    guest's data."""

    def flood(session: FakeSession, cell: Received) -> None:
        session.output(forged())
        session.display({"image/png": b"p" * 100_000})
        session.outcome(cell, value=b"v" * 100_000)

    fake.on("flood", flood)
    monkeypatch.setattr(_link, "_CHUNK", len(HEAD))
    monkeypatch.setattr(_conversation, "_GRACE", 0.02)
    return fake


def fates(
    alarm: AlarmClock, kind: Callable[..., Any], perform: Callable[[Any], Any] = lambda done: done
) -> set[bool]:
    """Whether the session continues after an exception at each place of a cell. It gives the right answer or
    reports that it is lost."""

    def flood(sbx: Any) -> None:
        perform(sbx.run("flood"))

    def fate(ring: Callable[[Any], None]) -> bool:
        sbx = kind(on_stdout=lambda text: None)
        perform(sbx.run("1"))
        ring(sbx)
        try:
            ended, lives = perform(sbx.run("6 * 7")), True
        except sandfork.SessionEnded:
            perform(sbx.restart())
            ended, lives = perform(sbx.run("6 * 7")), False
        assert ended.value == 42
        perform(sbx.close())
        return lives

    places: list[tuple[Place, int]] = []
    assert fate(lambda sbx: places.extend(alarm.places(functools.partial(flood, sbx))))
    return {
        fate(lambda sbx, at=place, nth=time: alarm.ring(at, nth, functools.partial(flood, sbx)))
        for place, time in places
    }


def test_exception_in_a_cell_never_lets_guests_forge_replies(
    flooding: FakeSupervisor,
) -> None:
    assert fates(AlarmClock(EXACT, SHARED), Sandbox) == {True, False}


def test_exception_in_an_async_cell_never_lets_guests_forge_replies(flooding: FakeSupervisor) -> None:
    loop = asyncio.new_event_loop()

    def perform(done: Any) -> Any:
        return loop.run_until_complete(done)

    assert fates(AlarmClock(EXACT, (*SHARED, _async)), AsyncSandbox, perform) == {True, False}
    loop.close()


class SharedSupervisor(FakeSupervisor):
    """Replaces the process that this one would start."""

    environ_differs = describe_end = end = forget = lambda self: None

    def __init__(self) -> None:
        super().__init__()
        self.process = SimpleNamespace(returncode=None)
        self.spare: list[socket.socket] = []

    def connect(self) -> socket.socket:
        if not self.spare:
            self.stand_by()
        return self.spare.pop()

    def stand_by(self) -> None:
        ours, theirs = socket.socketpair()
        self.attach(theirs)
        self.spare.append(ours)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs started supervisors in this process."""
    supervisors: list[SharedSupervisor] = []

    def start() -> SharedSupervisor:
        supervisors.append(SharedSupervisor())
        return supervisors[-1]

    monkeypatch.setattr(_supervisor, "Supervisor", start)
    monkeypatch.setattr(_supervisor, "_shared", None)
    yield
    for supervisor in supervisors:
        for spare in supervisor.spare:
            spare.close()
        supervisor.close()


def assert_ends(act: Callable[[], object]) -> None:
    """Checks that the call returns."""
    raised: list[BaseException] = []

    def attempt() -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert raised == []


def test_a_handler_may_open_and_close_sandboxes_anywhere(started: None) -> None:
    alarm = AlarmClock((_supervisor,), (_driver, _link))

    def open_and_close() -> None:
        Sandbox().close()

    def everywhere() -> None:
        first = Sandbox()
        places = list(alarm.places(open_and_close))
        assert len(places) > 100
        for place, time in places:
            other = Sandbox()

            def handle(other: Sandbox = other) -> None:
                other.close()
                sandfork.run("1")

            alarm.ring(place, time, open_and_close, handle)
        assert first.run("6 * 7").value == 42
        first.close()

    assert_ends(everywhere)


def test_a_sandbox_is_closed_while_another_thread_starts_a_supervisor(started: None) -> None:
    sbx = Sandbox()
    with _supervisor._lock:
        assert_ends(sbx.close)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_handler_may_fork_while_a_supervisor_is_started(started: None) -> None:
    def fork() -> None:
        with _supervisor._lock:
            child = os.fork()
            if child == 0:
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0

    assert_ends(fork)


def test_a_session_closed_by_a_handler_of_its_own_call(flooding: FakeSupervisor) -> None:
    alarm = AlarmClock((), (*EXACT, *SHARED))
    with Sandbox() as sbx:
        places = list(alarm.places(lambda: sbx.run("flood")))

    def everywhere() -> None:
        for place, time in places:
            with Sandbox() as sbx, contextlib.suppress(sandfork.SessionClosed):
                alarm.ring(place, time, functools.partial(sbx.run, "flood"), sbx.close)
            with pytest.raises(sandfork.SessionClosed):
                sbx.run("1")
            assert sbx._driver.resources.link is None

    assert_ends(everywhere)


def test_os_error_of_the_caller_is_not_converted(fake: FakeSupervisor) -> None:
    class Alarmed:
        """A socket in whose call a signal arrives."""

        def __init__(self, connected: socket.socket) -> None:
            self.connected = connected

        def recvmsg(self, *_: Any) -> Any:
            raise TimeoutError("of a handler")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.connected, name)

    with Sandbox() as sbx:
        link = sbx._driver.resources.link
        assert link is not None
        link._socket = Alarmed(link.connection.socket)
        with pytest.raises(TimeoutError, match="of a handler"):
            sbx.run("1")

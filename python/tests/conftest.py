"""Fixtures."""

from __future__ import annotations

import asyncio
import inspect
import signal
import socket
from collections.abc import Iterator

import pytest

from sandfork import _supervisor

from .support.descriptors import assert_closed_since, opened
from .support.fake import FakeSupervisor
from .support.fake_batch import FakeBatches, Script, Serve


def pytest_configure() -> None:
    """Restores SIGINT. A background job of a shell ignores it, and so would all child processes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs each async test in its own event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    names = inspect.signature(pyfuncitem.function).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(pyfuncitem.function(**arguments))
    return True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSupervisor]:
    """A supervisor in this process instead of the real one."""
    supervisor = FakeSupervisor()

    def connect() -> _supervisor.Connection:
        ours, theirs = socket.socketpair()
        supervisor.attach(theirs)
        return _supervisor.Connection(ours, None)

    monkeypatch.setattr(_supervisor, "connect", connect)
    yield supervisor
    supervisor.close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serves the next connections with these scripts."""
    before = opened()

    def start(*scripts: Script) -> FakeBatches:
        fake = FakeBatches(*scripts)

        def connect() -> _supervisor.Connection:
            ours, theirs = socket.socketpair()
            fake.attach(theirs)
            return _supervisor.Connection(ours, None)

        monkeypatch.setattr(_supervisor, "connect", connect)
        return fake

    yield start
    assert_closed_since(before)

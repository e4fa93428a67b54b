"""Fixtures."""

from __future__ import annotations

import asyncio
import inspect
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sandfork import _conversation, _supervisor

from .support.descriptors import assert_closed_since, opened
from .support.fake import FakeSupervisor
from .support.fake_batch import FakeBatches, Script, Serve

# The program that serves a package index for tests.
INDEX = pathlib.Path(__file__).parents[2] / "tests" / "cli" / "index.py"


def pytest_configure() -> None:
    """Restores SIGINT. A background job of a shell ignores it, and so would all child processes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs each async test in its own event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    # `pyfuncitem.obj` is the bound method if the test belongs to a class.
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(pyfuncitem.obj(**arguments))
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
    # An interrupted cell ends in a thread of this process, which may be slow on a busy machine.
    monkeypatch.setattr(_conversation, "_GRACE", 60.0)
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


@pytest.fixture
def index(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of an index, from which environments are made in a directory of the test's own."""
    for name in list(os.environ):
        if name.upper().startswith(("PIP_", "UV_")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    data = tmp_path / "data"
    data.mkdir()
    with subprocess.Popen([sys.executable, INDEX], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        monkeypatch.setenv("XDG_DATA_HOME", str(data))
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("UV_NO_CONFIG", "1")
        monkeypatch.setenv("SANDFORK_UV", "")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
        yield port
        assert server.stdin is not None
        server.stdin.close()
    if _supervisor._shared is not None:
        # The supervisor's sandboxes keep the environments in use.
        _supervisor._shared.end()
        _supervisor._shared = None
    for directory in data.rglob("*"):
        if directory.is_dir() and not directory.is_symlink():
            directory.chmod(0o755)
    shutil.rmtree(data)

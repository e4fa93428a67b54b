"""Servers that the tests start."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from sandfork import _binary

from ..integration.conftest import doctor, real
from .support import Server

__all__ = ["doctor", "real"]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Any]:
    """Starts servers with these arguments, and stops them after the test."""
    numbers = itertools.count()
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str, descriptors: int | None = None) -> Server:
            # As a user starts it: the command becomes the server.
            command = [_binary.find(), "server", "--listen", "127.0.0.1:0", *arguments]
            if descriptors is not None:
                command[:0] = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
            # A pipe that the test does not read would fill, and later lines would be lost.
            log = tmp_path / f"{next(numbers)}.log"
            with log.open("w") as written:
                process = stack.enter_context(
                    subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written, text=True)
                )
            stack.callback(process.kill)
            line = process.stdout.readline()
            assert "serving on http" in line, line + log.read_text()
            port = int(line.rpartition(":")[2])
            return Server(process, port, log)

        yield begin


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    """A server with these arguments, which must exit without an error."""
    command = [_binary.find(), "server", "--listen", "127.0.0.1:0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        port = int(process.stdout.readline().rpartition(":")[2])
        yield Server(process, port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.fixture(scope="module")
def server(real: None) -> Iterator[Server]:
    """A server without tokens, for all users of this machine."""
    with serving() as server:
        yield server

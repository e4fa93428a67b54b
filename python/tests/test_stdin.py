"""The standard input of a run. A guest gets a pipe, and no open file of its caller."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandfork
from sandfork._stdin import piped

from .support.descriptors import assert_closed_since, opened
from .support.fake import FakeSupervisor

LENGTHS = [0, 1, 4096, 4097, 70_000, 1 << 20]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread and no descriptor is left behind."""
    before = opened()
    yield
    wait_for_threads()
    assert_closed_since(before)


def wait_for_threads() -> None:
    deadline = time.monotonic() + 60
    while any(thread.name == "sandfork-stdin" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "a thread is left"
        time.sleep(0.005)


def content(length: int) -> bytes:
    return bytes(number % 251 for number in range(length))


def received(stdin: Any) -> bytes:
    descriptor = piped(stdin)
    assert stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    with open(descriptor, "rb") as file:
        return file.read()


@pytest.mark.parametrize("length", LENGTHS)
def test_file_is_read_from_its_unchanged_position(length: int, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"before" + content(length))
    with path.open("r+b") as file:
        file.seek(6)
        for _ in range(2):
            assert received(file) == content(length)
            assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 6
    assert path.read_bytes() == b"before" + content(length)


@pytest.mark.parametrize("length", LENGTHS)
def test_bytes_arrive(length: int) -> None:
    assert received(content(length)) == content(length)
    assert received("é" * length) == ("é" * length).encode()


@pytest.mark.parametrize("kind", ["pipe", "socket", "terminal"])
def test_input_up_to_an_error_arrives(kind: str) -> None:
    if kind == "pipe":
        read, write = os.pipe()
    elif kind == "terminal":
        write, read = pty.openpty()
    else:
        ours, theirs = socket.socketpair()
        read, write = ours.detach(), theirs.detach()
    with open(read, "rb", buffering=0) as file:
        descriptor = piped(file)
        assert (os.fstat(descriptor).st_dev, os.fstat(descriptor).st_ino) != (
            os.fstat(read).st_dev,
            os.fstat(read).st_ino,
        )
        os.write(write, b"a line\n")
        assert os.read(descriptor, 100) == b"a line\n"
        if kind != "terminal":
            os.close(write)
            assert os.read(descriptor, 100) == b""
        # A terminal sends no end of file here, so the copying stops when the reader closes the pipe.
        os.close(descriptor)
        wait_for_threads()
        if kind == "terminal":
            os.close(write)


def test_silent_input_source_leaves_no_thread() -> None:
    read, write = os.pipe()
    with open(read, "rb") as file:
        os.close(piped(file))
        wait_for_threads()
        # Later input stays for the caller.
        os.write(write, b"later")
        assert os.read(read, 100) == b"later"
    os.close(write)


def test_reader_that_ends_early_is_not_an_error(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(content(1 << 20))
    old = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        with path.open("rb") as file:
            descriptor = piped(file)
        assert os.read(descriptor, 10) == content(10)
        os.close(descriptor)
        os.close(piped(content(1 << 20)))
        wait_for_threads()
    finally:
        signal.signal(signal.SIGPIPE, old)


def test_a_forked_process_does_not_keep_the_input_open() -> None:
    read, write = os.pipe()
    with open(read, "rb") as file:
        descriptor = piped(file)
    go, going = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(write)
            os.close(going)
            os.read(go, 1)
        os._exit(0)
    os.close(write)
    # The input ends although the child process lives.
    assert os.read(descriptor, 1) == b""
    for end in (going, go, descriptor):
        os.close(end)
    os.waitpid(child, 0)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as file, pytest.raises(sandfork.RequestError, match="for writing"):
        piped(file)
    with pytest.raises(sandfork.RequestError, match="of type int: give text, bytes or an open file"):
        piped(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [10, 1 << 20])
def test_a_run_gets_a_pipe(fake: FakeSupervisor, tmp_path: Path, length: int) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x" * length)
    with path.open("rb") as file:
        assert sandfork.run("print(len(stdin))", stdin=file).logs.stdout == [f"{length}\n"]

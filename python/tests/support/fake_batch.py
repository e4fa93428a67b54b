"""The supervisor's side of a batch, scripted by a test with one function for each connection."""

from __future__ import annotations

import socket
import threading
from typing import Any, Callable

from sandfork import _values

from .fake import ENFORCED, LIMITS, POLICY, USAGE
from .wire import Received, Wire

Script = Callable[["FakeBatch"], None]


class FakeBatch:
    """A connection whose first message was received."""

    def __init__(self, connected: socket.socket) -> None:
        self.wire = Wire(connected)
        opening = self.wire.receive()
        assert opening is not None
        self.opening = opening.header

    def begin(self, *, window: int = 4, **fields: Any) -> None:
        python = {"executable": "/usr/bin/python3", "version": "3.11.2", "environment": "/usr"}
        told = {
            "version": 2,
            "jobs": 1,
            "window": window,
            "policy": POLICY,
            "python": python,
            "limits": LIMITS,
        }
        self.wire.send({"kind": "mapping", **told, **fields})

    def task(self) -> Received | None:
        """The next task, or `None` after the last."""
        received = self.wire.receive()
        if received is None or received.header["kind"] == "end":
            return None
        assert received.header["kind"] == "task"
        return received

    def done(self, number: int, value: Any = None, stdout: bytes = b"", **fields: Any) -> None:
        inner = {"status": "ok", "exit_code": 0, "limit": None, "error": None, "usage": USAGE}
        told = {**inner, "denied": []}
        if stdout:
            self.wire.send({"kind": "output", "id": number, "stream": "stdout"}, stdout)
        tree = _values.Encoder().encode(value)
        header = {"kind": "done", "id": number, "attempts": 1, "outcome": told, "value": tree}
        header["enforced"] = ENFORCED
        self.wire.send({**header, **fields})

    def error(self, word: str, message: str, **fields: Any) -> None:
        self.wire.send({"kind": "error", "error": word, "message": message, **fields})

    def lost(self, number: int, word: str, message: str, attempts: int = 4) -> None:
        told = {"error": word, "message": message}
        self.wire.send({"kind": "lost", "id": number, "attempts": attempts, **told})

    def close(self) -> None:
        self.wire.send({"kind": "closed"})


class FakeBatches:
    """Serves connections one after the other, each with the next script."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.openings: list[dict[str, Any]] = []

    def attach(self, connected: socket.socket) -> None:
        threading.Thread(target=self._serve, args=(connected, self.scripts.pop(0)), daemon=True).start()

    def _serve(self, connected: socket.socket, script: Script) -> None:
        with connected:
            batch = FakeBatch(connected)
            self.openings.append(batch.opening)
            script(batch)


Serve = Callable[..., FakeBatches]
"""Starts to serve connections with scripts."""


def all_ok(batch: FakeBatch) -> None:
    """Starts, and reports each task as done, with its number as its value."""
    batch.begin()
    for task in iter(batch.task, None):
        batch.done(task.header["id"], task.header["id"])
    batch.close()


def none_done(batch: FakeBatch) -> None:
    """Starts, and sends nothing more until the client disconnects."""
    batch.begin()
    while batch.wire.receive() is not None:
        pass

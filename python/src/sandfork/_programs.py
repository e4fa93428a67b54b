"""The conversations of a session's programs. This module does no I/O; see `_conversation`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ._conversation import (
    Actions,
    Callbacks,
    Conversation,
    Receive,
    unexpected,
)
from ._exceptions import RequestError, refused
from ._output import Output
from ._values import harmless

CHUNK = 1 << 16
"""The maximum number of input bytes in one message."""


@dataclass(frozen=True)
class CommandResult:
    """The end of a program, and its output."""

    status: str
    """`exited`, `signal`, `timeout` (killed at its timeout), `output-limit` (killed because it exceeded its
    output limit), or `lost` (its session ended)."""
    exit_code: int | None
    """The exit status, if the program exited."""
    signal: int | None
    """The signal that killed the program, if any."""
    why: str | None
    """The reason why the program was lost."""
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether the program exited with status 0."""
        return self.exit_code == 0

    @property
    def shell_code(self) -> int | None:
        """The exit status as a shell and timeout(1) report it: 128 plus the number of the signal that killed
        the program, and 124 after a timeout."""
        if self.signal is not None:
            return 128 + self.signal
        return 124 if self.status == "timeout" else self.exit_code


class Beside(Conversation):
    """A conversation on a separate connection, in addition to that of the session."""

    noun = "program"
    lost = "what it prints is lost"

    def settle(self) -> Actions[bool]:
        # Only output and the reply to input can be pending, and both can be received later.
        return self.decoder is not None and not self.decoder.drop_descriptors()
        yield

    def open(self, kind: str, path: str = "") -> Actions[dict[str, Any]]:
        """Connects, and waits for the first reply, which must be of this kind. `path` is for file errors."""
        yield (yield from self._connect())
        return (yield from self._answer(kind, path=path)).header


class Program(Beside):
    """A program, from its start to its end."""

    def __init__(self, opening: Mapping[str, Any], callbacks: Callbacks, data: bytes | None) -> None:
        super().__init__(opening)
        self.output = Output(callbacks)
        self.pid = 0
        self.result: CommandResult | None = None
        # The rest of its input.
        self._data = None if data is None else memoryview(data)

    def start(self) -> Actions[None]:
        self.pid = int((yield from self.open("started")).get("pid") or 0)

    def follow(self) -> Actions[CommandResult]:
        """Writes the program's input, and waits for its end."""
        while self._data is not None and self.result is None:
            yield from self._feed(self._data)
        while self.result is None:
            yield from self._next()
        return self.result

    def _feed(self, data: memoryview) -> Actions[None]:
        """Writes a part of the program's input, and waits until the program's pipe has accepted it."""
        part, rest = data[:CHUNK], data[CHUNK:]
        if not self.under_way:
            yield self._numbered({"kind": "input", "end": not rest}, bytes(part))
        # A wait that was interrupted before the reply continues here.
        while self.under_way and self.result is None:
            header = yield from self._next()
            if header.get("id") == self.under_way and header["kind"] != "output":
                self._answered()
                self._data = rest or None
                if header["kind"] == "error":
                    error = refused(header)
                    if not isinstance(error, RequestError):
                        raise error
                    # The program has closed its input.
                    self._data = None

    def _next(self) -> Actions[Mapping[str, Any]]:
        """Handles the next message. The program's end may arrive instead of a reply."""
        frame = yield Receive()
        header: Mapping[str, Any] = frame.header
        kind = header["kind"]
        if kind == "output":
            yield from self.output.add(frame, self._incoming)
        elif kind == "ended":
            yield from self.output.end()
            self.result = self._ended(header)
        elif kind not in ("accepted", "error") or header.get("id") is None:
            raise unexpected(header)
        return header

    def _ended(self, header: Mapping[str, Any]) -> CommandResult:
        def whole(name: str) -> int | None:
            value = header.get(name)
            return value if type(value) is int else None

        logs, why = self.output.logs, header.get("why")
        return CommandResult(
            status=str(header.get("end")),
            exit_code=whole("code"),
            signal=whole("signal"),
            why=None if why is None else harmless(str(why)),
            stdout="".join(logs.stdout),
            stderr="".join(logs.stderr),
        )


class Act(Beside):
    """Sends requests for a program that was started on another connection."""

    def act(self, requests: Iterable[tuple[dict[str, Any], bytes]]) -> Actions[None]:
        yield from self.open("started")
        for header, payload in requests:
            yield self._numbered(header, payload)
            answer = (yield Receive()).header
            if answer["kind"] == "ended":
                raise RequestError("the program has ended")
            if answer["kind"] not in ("accepted", "error") or answer.get("id") != self.under_way:
                raise unexpected(answer)
            self._answered()
            if answer["kind"] == "error":
                raise refused(answer)

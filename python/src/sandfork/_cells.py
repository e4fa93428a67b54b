"""The messages of one cell, from its start to its end."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

from . import _blobs, _result
from ._calls import Calls
from ._exceptions import ProtocolError, SupervisorError, from_word
from ._execution import Execution, Logs
from ._frames import Frame
from ._link import Link
from ._reports import SessionInfo
from ._result import Result
from ._steps import RECEIVE, Notify, Steps

OnText = Callable[[str], Any]
OnResult = Callable[[Result], Any]


class Callbacks(NamedTuple):
    """Functions that are called with a cell's output while it runs."""

    stdout: OnText | None = None
    stderr: OnText | None = None
    result: OnResult | None = None

    def over(self, others: Callbacks) -> Callbacks:
        """These callbacks; a missing one is taken from `others`."""
        return Callbacks(
            self.stdout or others.stdout, self.stderr or others.stderr, self.result or others.result
        )


NO_CALLBACKS = Callbacks()


class Text:
    """The text of one stream, in pieces of whole characters."""

    __slots__ = ("_decoder", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._decoder: codecs.IncrementalDecoder | None = None

    def add(self, data: bytes | bytearray, *, end: bool = False) -> str:
        if self._decoder is None:
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        piece = self._decoder.decode(data, end)
        if piece:
            self.pieces.append(piece)
        return piece

    def end(self) -> str:
        """The replacement text for an incomplete character at the end."""
        return "" if self._decoder is None else self.add(b"", end=True)


def follow(
    number: int,
    link: Link,
    calls: Calls,
    callbacks: Callbacks,
    *,
    info: SessionInfo,
    wall: float | None,
    restarted: bool,
) -> Steps[Execution | Frame]:
    """Follows a cell that was sent until it ends, or raises the error for which it did not run."""
    stdout, stderr = Text(), Text()
    shown: list[Result] = []
    while True:
        frame: Frame = yield RECEIVE
        header = frame.header
        kind = header["kind"]
        if kind == "outcome" and header.get("id") == number:
            break
        if kind == "output":
            to_stdout = header.get("stream") == "stdout"
            piece = (stdout if to_stdout else stderr).add(frame.payload)
            callback = callbacks.stdout if to_stdout else callbacks.stderr
            if piece and callback is not None:
                yield Notify(callback, piece)
        elif kind == "display":
            result = _display(frame, link)
            shown.append(result)
            if callbacks.result is not None:
                yield Notify(callbacks.result, result)
        elif kind == "call":
            _check_call(header)
            yield from calls.answer(frame, link, info.limits.get("limits.memory", _blobs.LARGEST))
        elif kind == "error" and header.get("id") == number:
            return frame
        else:
            raise unexpected(frame)
    for stream, callback in ((stdout, callbacks.stdout), (stderr, callbacks.stderr)):
        piece = stream.end()
        if piece and callback is not None:
            yield Notify(callback, piece)
    buffers = _blobs.unpack(frame, link.decoder)
    check_outcome(header, link)
    logs = Logs(stdout.pieces, stderr.pieces)
    return Execution(header, logs, shown, info, buffers=buffers, wall=wall, restarted=restarted)


def refused(frame: Frame) -> Exception:
    """The exception for an `error` message that answers a request."""
    return from_word(str(frame.header.get("error")), str(frame.header.get("message")))


def unexpected(frame: Frame) -> Exception:
    """The exception for a message that answers no request: the reason why the connection is unusable, or a
    protocol violation."""
    header = frame.header
    if header["kind"] == "error":
        said = refused(frame)
        return said if isinstance(said, SupervisorError) else SupervisorError(str(said))
    return ProtocolError(f"the supervisor sent {header['kind']!r} when nothing of the kind was due")


def check_outcome(header: Mapping[str, Any], link: Link) -> None:
    """Refuses an outcome that lacks a required field, and descriptors that no field refers to."""
    check_result(header)
    if header.get("session") not in ("live", "ended"):
        raise ProtocolError("the supervisor sent an outcome that does not say whether the session lives")
    if link.decoder.drop_descriptors():
        raise ProtocolError("the supervisor passed a file that no message refers to")


def check_result(header: Mapping[str, Any]) -> None:
    """Refuses a result without its required fields."""
    outcome = header.get("outcome")
    if type(outcome) is not dict or type(outcome.get("status")) is not str:
        raise ProtocolError("the supervisor sent an outcome without a status")


def _display(frame: Frame, link: Link) -> Result:
    buffers = _blobs.unpack(frame, link.decoder)
    if type(frame.header.get("data")) is not dict:
        raise ProtocolError("the supervisor sent a display of nothing")
    return _result.decoded(frame.header, buffers)


def _check_call(header: Mapping[str, Any]) -> None:
    shapes = (("call", int), ("tool", str), ("args", list), ("kwargs", dict))
    for name, kind in shapes:
        if type(header.get(name, kind())) is not kind:
            raise ProtocolError(f"the supervisor sent a call whose {name} is no {kind.__name__}")
    if "call" not in header or "tool" not in header:
        raise ProtocolError("the supervisor sent a call that does not say of what")

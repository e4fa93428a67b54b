"""The output of a cell or a program."""

from __future__ import annotations

import codecs

from . import _result
from ._blobs import unpack
from ._conversation import Actions, Callbacks, Notify, OnText, decode
from ._exceptions import ProtocolError
from ._execution import Logs
from ._frames import Decoder, Frame
from ._result import Result

_UTF_8 = codecs.getincrementaldecoder("utf-8")


class Output:
    """The output of a cell, as it arrives."""

    def __init__(self, callbacks: Callbacks | None = None) -> None:
        on_stdout, on_stderr, self._on_result = callbacks or Callbacks()
        self._stdout, self._stderr = _Text(on_stdout), _Text(on_stderr)
        self.shown: list[Result] = []

    @property
    def logs(self) -> Logs:
        return Logs(self._stdout.pieces, self._stderr.pieces)

    def add(self, frame: Frame, decoder: Decoder) -> Actions[None]:
        """Adds the content of a frame, and calls its callback."""
        header = frame.header
        if header["kind"] == "output":
            stream = self._stdout if header.get("stream") == "stdout" else self._stderr
            yield from stream.add(frame.payload)
            return
        buffers = unpack(frame, decoder)
        if type(header.get("data")) is not dict:
            raise ProtocolError("the supervisor sent a display of nothing")
        result = yield from decode(frame, lambda: _result.decoded(header, buffers))
        self.shown.append(result)
        if self._on_result is not None:
            yield Notify(self._on_result, (result,))

    def end(self) -> Actions[None]:
        """Flushes both streams, and replaces an incomplete character at the end."""
        for stream in (self._stdout, self._stderr):
            if stream.decoder is not None:
                yield from stream.add(b"", end=True)


class _Text:
    """The text of one stream, in pieces of whole characters."""

    def __init__(self, callback: OnText | None) -> None:
        self.pieces: list[str] = []
        self.decoder: codecs.IncrementalDecoder | None = None
        self._callback = callback

    def add(self, data: bytes | bytearray, *, end: bool = False) -> Actions[None]:
        if self.decoder is None:
            self.decoder = _UTF_8("replace")
        piece = self.decoder.decode(data, end)
        if piece:
            self.pieces.append(piece)
            if self._callback is not None:
                yield Notify(self._callback, (piece,))

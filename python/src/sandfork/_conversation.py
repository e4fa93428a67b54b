"""Requests and their answers on one connection. No input or output happens here: see `_steps`."""

from __future__ import annotations

import time
from typing import Any

from . import _blobs
from ._calls import message, refusal
from ._cells import check_outcome, unexpected
from ._exceptions import from_errno
from ._frames import Frame
from ._link import Link
from ._steps import CONNECT, RECEIVE, Receive, Send, Steps

# Seconds that a cell has to end after it was interrupted because its caller went away.
_GRACE = 2.0


class Conversation:
    """One request at a time, each with a number that its answer repeats."""

    noun = "session"
    """What messages call it."""

    def __init__(self) -> None:
        self.ended: str | None = None
        """Why there is no worker; `None` while there is one."""
        self.under_way = 0
        """Number of the request that is not answered yet, or 0."""
        self.running = False
        """Whether that is a cell that was sent."""
        self.link: Link | None = None
        self._number = 0
        # Several requests of which none is answered: an exception leaves nothing that can be mended.
        self._establishing = False

    def connect(self) -> Steps[Link]:
        """A new connection in place of the present one."""
        link: Link = yield CONNECT
        self.link = link
        return link

    def ask(
        self,
        header: dict[str, Any],
        payload: bytes = b"",
        outgoing: _blobs.Outgoing | None = None,
    ) -> Steps[int]:
        """Sends a request; its number."""
        try:
            yield self.numbered(header, payload, outgoing)
            return self._number
        finally:
            if outgoing is not None:
                outgoing.close()

    def numbered(
        self,
        header: dict[str, Any],
        payload: bytes = b"",
        outgoing: _blobs.Outgoing | None = None,
    ) -> Send:
        """A request with the next number, under way from now on: it is to be sent at once."""
        self._number += 1
        step = message({**header, "id": self._number}, payload, outgoing)
        self.under_way = self._number
        return step

    def answer(self, wanted: str, number: int | None = None, path: str = "") -> Steps[Frame]:
        """The answer to a request."""
        link = self.live_link()
        while True:
            frame: Frame = yield RECEIVE
            header = frame.header
            kind = header["kind"]
            if kind == wanted and header.get("id") == number:
                break
            if kind == "call":
                # Of a thread of the guest, when no cell runs.
                yield refusal(frame, link, "no cell is running")
            elif kind in ("output", "display"):
                _blobs.discard(frame, link.decoder)
            else:
                if kind == "error" and header.get("id") in (number, None):
                    self.under_way = 0
                if kind == "error" and header.get("error") == "file":
                    raise from_errno(int(header.get("errno") or 0), str(header.get("message")), path)
                raise unexpected(frame)
        if wanted == "outcome":
            check_outcome(header, link)
        self.under_way = 0
        return frame

    def settle(self) -> Steps[bool]:
        """After an exception of the caller's in the middle of a request: interrupts a cell and waits a
        little for its end. Whether the session is good for another request."""
        link = self.link
        if link is None or self._establishing:
            return False
        if not self.under_way:
            return True
        deadline = time.monotonic() + _GRACE
        link.interrupt()
        while True:
            frame: Frame | None = yield Receive(deadline)
            if frame is None:
                return False
            kind, number = frame.header["kind"], frame.header.get("id")
            if kind == "call":
                yield refusal(frame, link, "the caller was interrupted")
            elif kind in ("outcome", "file", "error") and number in (self.under_way, None):
                break
            else:
                _blobs.discard(frame, link.decoder)
        link.cancel_interrupt()
        link.decoder.drop_descriptors()
        self.under_way, self.running = 0, False
        if frame.header.get("session") == "ended":
            self.ended = "the session ended when its caller was interrupted"
        return True

    def lost(self, why: str) -> None:
        """The connection is of no more use; the next request needs another one."""
        self.ended = why
        self.link = None
        self.under_way, self.running, self._establishing = 0, False, False

    def live_link(self) -> Link:
        """The connection of a conversation that has one."""
        assert self.link is not None
        return self.link

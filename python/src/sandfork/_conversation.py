"""Requests and their answers on one connection. This module does no I/O; see `_steps`."""

from __future__ import annotations

import time
from typing import Any

from . import _blobs
from ._calls import message, refusal
from ._cells import check_outcome, refused, unexpected
from ._exceptions import from_errno
from ._frames import Frame
from ._link import Link
from ._steps import CONNECT, RECEIVE, Receive, Send, Steps

# Seconds for a cell to end after it is interrupted because its caller left.
_GRACE = 2.0


class Conversation:
    """Sends one request at a time. Each request has a number, which its answer repeats."""

    noun = "session"
    """The word for it in error messages."""

    def __init__(self) -> None:
        self.ended: str | None = None
        """The reason why there is no worker; `None` while there is one."""
        self.under_way = 0
        """The number of the unanswered request, or 0."""
        self.running = False
        """Whether the unanswered request is a cell that was sent."""
        self.link: Link | None = None
        self._number = 0
        # Several requests are unanswered while a session is established. An exception then loses the session.
        self._establishing = False

    @property
    def settled(self) -> bool:
        """Whether every request is answered."""
        return not self.under_way and not self._establishing

    def connect(self) -> Steps[Link]:
        """Replaces the connection with a new one."""
        link: Link = yield CONNECT
        self.link = link
        return link

    def ask(
        self,
        header: dict[str, Any],
        payload: bytes = b"",
        outgoing: _blobs.Outgoing | None = None,
    ) -> Steps[int]:
        """Sends a request and returns its number."""
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
        """A request with the next number. It counts as unanswered from now on, so it must be sent at once."""
        self._number += 1
        step = message({**header, "id": self._number}, payload, outgoing)
        self.under_way = self._number
        return step

    def answer(self, wanted: str, number: int | None = None, path: str = "") -> Steps[Frame]:
        """Waits for the answer to a request and returns it."""
        link = self.live_link()
        while True:
            frame: Frame = yield RECEIVE
            header = frame.header
            kind = header["kind"]
            if kind == wanted and header.get("id") == number:
                break
            if kind == "call":
                # A thread of the guest calls a tool while no cell runs.
                yield refusal(frame, link, "no cell is running")
            elif kind in ("output", "display"):
                _blobs.discard(frame, link.decoder)
            else:
                if kind == "error" and header.get("id") == number:
                    self.under_way = 0
                    if header.get("error") == "file":
                        raise from_errno(int(header.get("errno") or 0), str(header.get("message")), path)
                    raise refused(frame)
                raise unexpected(frame)
        if wanted == "outcome":
            check_outcome(header, link)
        self.under_way = 0
        return frame

    def settle(self) -> Steps[bool]:
        """After an exception of the caller during a request: interrupts the running cell and waits briefly
        for its end. Returns whether the session can serve another request."""
        link = self.link
        if link is None or self._establishing:
            return False
        if not self.under_way:
            # A descriptor that was received but not taken would be mistaken for a later one.
            return not link.decoder.drop_descriptors()
        deadline = time.monotonic() + _GRACE
        link.interrupt()
        while True:
            frame: Frame | None = yield Receive(deadline)
            if frame is None:
                return False
            kind, number = frame.header["kind"], frame.header.get("id")
            if kind == "call":
                yield refusal(frame, link, "the caller was interrupted")
            elif kind in ("outcome", "file", "error") and number == self.under_way:
                break
            elif kind in ("output", "display"):
                _blobs.discard(frame, link.decoder)
            else:
                return False
        link.cancel_interrupt()
        link.decoder.drop_descriptors()
        self.under_way, self.running = 0, False
        if frame.header.get("session") == "ended":
            self.ended = "the session ended when its caller was interrupted"
        return True

    def lost(self, why: str) -> None:
        """Marks the connection as unusable; the next request needs a new one."""
        self.ended = why
        self.link = None
        self.under_way, self.running, self._establishing = 0, False, False

    def live_link(self) -> Link:
        """The connection, which must exist."""
        assert self.link is not None
        return self.link

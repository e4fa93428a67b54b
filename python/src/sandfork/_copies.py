"""Requests that copy a session's state or replace it. This module does no I/O; see `_conversation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._conversation import Actions, Complete, Notify, discarding
from ._exceptions import SessionEnded, refused
from ._values import harmless

if TYPE_CHECKING:
    from ._session import Session


def copied(session: Session, request: str, answer: str, complete: Complete) -> Actions[dict[str, Any]]:
    """Requests a copy of the session, and returns the reply. If the caller is cancelled, `complete` handles
    the reply."""
    number = yield from session._send({"kind": request})
    session._complete = complete
    ignore = discarding("no cell is running")
    frame = yield from session._recv((answer, "outcome"), number, ignore)
    session._answered()
    header: dict[str, Any] = frame.header
    if header["kind"] == "error":
        raise refused(header)
    if header["kind"] == "outcome":
        session._outcome(frame)
        status = harmless(str(header["outcome"]["status"]))
        session.ended = f"the session ended while it was copied ({status}): {session.lost}"
        raise SessionEnded(session.ended)
    return header


def discarded(session: Session, header: Mapping[str, Any]) -> Actions[None]:
    """Frees a snapshot whose caller has stopped waiting."""
    from ._snapshots import _discard

    yield Notify(_discard, (header.get("snapshot"), session.supervisor))


def paused(header: Mapping[str, Any]) -> Actions[None]:
    """Completes a pause whose caller has stopped waiting; there is nothing to do."""
    return
    yield

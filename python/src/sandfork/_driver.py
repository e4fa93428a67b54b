"""The common part of both drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from . import _supervisor
from ._conversation import Conversation
from ._exceptions import (
    ProtocolError,
    SessionBusy,
    SessionClosed,
    SessionForked,
    SupervisorDied,
    SupervisorError,
)
from ._link import Link

if TYPE_CHECKING:
    from ._threads import LoopThread

# After these errors the connection is unusable.
FATAL = (SupervisorError, SessionClosed, SessionForked)

# Holds the turn of a closed driver permanently.
_CLOSED = object()


class Resources:
    """The resources that a sandbox must release. They are separate from the sandbox, so that its finalizer
    can release them."""

    __slots__ = ("link", "loop")

    def __init__(self) -> None:
        self.link: Link | None = None
        self.loop: LoopThread | None = None

    def release(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.close()
        loop, self.loop = self.loop, None
        if loop is not None:
            loop.stop()


C = TypeVar("C", bound=Conversation)


class Driver(Generic[C]):
    """The part of a driver that neither waits nor calls functions of the host."""

    def __init__(self, session: C) -> None:
        self.session = session
        self.resources = Resources()
        self.closed = False
        self._process = _supervisor.this_process
        # The conversation that has the turn. A signal handler or a finalizer could deadlock on a lock;
        # `dict.setdefault` is atomic and never waits.
        self._turns: dict[None, object] = {}

    def interrupt(self) -> None:
        """Interrupts the running cell, if there is one. May be called from any thread."""
        link = self.resources.link
        if self.session.running and link is not None:
            link.interrupt()

    def check(self) -> None:
        """Raises `SessionForked` or `SessionClosed` if no conversation is possible."""
        if self._process is not _supervisor.this_process:
            raise SessionForked(
                f"this {self.session.noun} belongs to the process that this one was forked from: open one "
                "here"
            )
        if self.closed:
            raise SessionClosed(f"the {self.session.noun} is closed: open another one")

    def begin(self, turn: object) -> None:
        """Takes the turn. Raises `SessionBusy` if another conversation has it."""
        if self._turns.setdefault(None, turn) is not turn:
            # Closing takes the turn too.
            self.check()
            session = self.session
            raise SessionBusy(
                f"the {session.noun} is running something, for another thread or task or for the one whose "
                "tool or callback this is: it serves one caller at a time, so open one for each"
            )
        link = self.resources.link
        if link is not self.session.link or not self.session.settled or (link is not None and link.torn):
            # A second exception arrived while the session recovered from the first.
            self.lose()

    def has(self, turn: object) -> bool:
        """Whether this conversation has the turn."""
        return self._turns.get(None) is turn

    def end(self) -> None:
        """Releases the turn."""
        self._turns.clear()
        if self.closed:
            self.resources.release()

    def close(self) -> None:
        """Ends the session without waiting. An active call raises `SessionClosed`. May be called from any
        thread, signal handler or finalizer."""
        self.closed = True
        link = self.resources.link
        if link is None or link.connection.forked or self._turns.setdefault(None, _CLOSED) is _CLOSED:
            self.let_go()
        else:
            link.shut_down()

    def live_link(self) -> Link:
        """The session's connection. Raises `ProtocolError` if there is none."""
        link = self.resources.link
        if link is None:
            raise ProtocolError("there is no connection")
        return link

    def take(self, link: Link) -> Link:
        """Makes `link` the session's connection."""
        if self.resources.link is not None:
            self.resources.link.close()
        self.resources.link = link
        return link

    def let_go(self) -> None:
        """Releases the resources of a closed session. Its user probably opens another one, so a connection is
        prepared."""
        self.resources.release()
        _supervisor.stand_by()

    def can_settle(self, error: BaseException) -> bool:
        """Whether the connection is still usable after this exception."""
        link = self.resources.link
        return (
            link is not None
            and link is self.session.link
            and not link.torn
            and not isinstance(error, (*FATAL, GeneratorExit))
        )

    def lose(self, error: BaseException | None = None) -> None:
        """Ends a session that cannot continue after this exception."""
        link, self.resources.link = self.resources.link, None
        if link is not None and link.torn:
            why = "an exception, as of a signal handler, came in the middle of a message"
        elif isinstance(error, SupervisorDied):
            why = "its supervisor died"
        elif isinstance(error, ProtocolError):
            why = "its supervisor could not be understood"
        else:
            why = "its caller left it in the middle of something"
        self.session.lost(f"the {self.session.noun} ended when {why}: variables, imports and files are lost")
        if link is not None:
            link.close()

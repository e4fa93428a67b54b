"""What both drivers share."""

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

# After these nothing more can be said on the connection.
FATAL = (SupervisorError, SessionClosed, SessionForked)


class Resources:
    """What a sandbox has to let go of. Apart from it, so that it can be let go of when the sandbox is
    collected as garbage."""

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
    """The part of a driver that neither waits nor calls anything."""

    def __init__(self, session: C) -> None:
        self.session = session
        self.resources = Resources()
        self.closed = False
        self._process = _supervisor.this_process

    def interrupt(self) -> None:
        """From any thread: interrupts the cell that runs, if one does."""
        link = self.resources.link
        if self.session.running and link is not None:
            link.interrupt()

    def check(self) -> None:
        """Refuses a conversation that cannot be had."""
        if self._process is not _supervisor.this_process:
            raise SessionForked(
                f"this {self.session.noun} belongs to the process that this one was forked from: open one "
                "here"
            )
        if self.closed:
            raise SessionClosed(f"the {self.session.noun} is closed: open another one")

    def live_link(self) -> Link:
        """The connection of a session that has one."""
        link = self.resources.link
        if link is None:
            raise ProtocolError("there is no connection")
        return link

    def take(self, link: Link) -> Link:
        """Makes this the session's connection."""
        if self.resources.link is not None:
            self.resources.link.close()
        self.resources.link = link
        return link

    def let_go(self) -> None:
        """What its user closed is closed. Who closes one may well open another."""
        self.resources.release()
        _supervisor.stand_by()

    def lose(self, error: BaseException) -> None:
        """Ends a session that cannot go on after this."""
        link, self.resources.link = self.resources.link, None
        if link is not None:
            link.close()
        if isinstance(error, SupervisorDied):
            why = "its supervisor died"
        elif isinstance(error, ProtocolError):
            why = "its supervisor could not be understood"
        else:
            why = "its caller left it in the middle of something"
        self.session.lost(f"the {self.session.noun} ended when {why}: variables, imports and files are lost")


def busy(session: Conversation) -> SessionBusy:
    return SessionBusy(
        f"the {session.noun} is running something, for another thread or task or for the one whose tool or "
        "callback this is: it serves one caller at a time, so open one for each"
    )

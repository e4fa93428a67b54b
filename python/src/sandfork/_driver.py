"""Performs the actions of conversations: the common part of both drivers, and the driver for blocking
callers. A blocking caller's own thread waits for the supervisor, which saves a wake-up by another thread."""

from __future__ import annotations

import inspect
import select
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar

from . import _events, _supervisor
from ._conversation import (
    Action,
    Actions,
    Connect,
    Conversation,
    Decode,
    Interrupt,
    Invoke,
    Receive,
    Send,
    SendCell,
)
from ._exceptions import ProtocolError, SessionBusy, SessionClosed, SessionForked, SupervisorError
from ._frames import Decoder, Frame
from ._link import DONT_WAIT, Link, is_ready
from ._tools import is_async

if TYPE_CHECKING:
    from ._threads import LoopThread

C = TypeVar("C", bound=Conversation)
T = TypeVar("T")

Work = Generator[Any, Any, T]
"""Work of a driver for its caller. It yields the futures that an event loop waits for; that of a blocking
driver never yields."""

# After these errors, and when the caller abandons a conversation, the connection is unusable.
_FATAL = (SupervisorError, SessionClosed, SessionForked, GeneratorExit)

# Permanently holds the turn of a closed driver, so that no conversation can begin.
_CLOSED = object()


class Resources:
    """The resources that a sandbox must release. They are separate from the sandbox, so that its finalizer
    can release them."""

    __slots__ = ("closed", "link", "loop")

    def __init__(self) -> None:
        self.closed = False
        self.link: Link | None = None
        self.loop: LoopThread | None = None

    def close(self) -> None:
        """Releases the resources for good; called by a finalizer. At the interpreter's exit, threads and
        `atexit` functions may still try to begin a conversation, and fail."""
        self.closed = True
        self.release()

    def release(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.close()
        loop, self.loop = self.loop, None
        if loop is not None:
            loop.stop()


class Driver(ABC, Generic[C]):
    """Conducts the conversations of one session or batch, one at a time."""

    blocking: bool
    """Whether reads block until data arrives."""

    def __init__(self, session: C, *, owner: object = None) -> None:
        """The driver's resources are released when `owner`, or by default the driver, is
        garbage-collected."""
        self.session = session
        self.resources = Resources()
        weakref.finalize(self if owner is None else owner, self.resources.close)
        self._process = _supervisor.this_process
        # Whether a conversation has begun, and has neither ended nor been settled after an exception.
        self._is_open = False
        # The conversation that has the turn. A signal handler or a finalizer could deadlock on a lock;
        # `dict.setdefault` is atomic and never waits.
        self._turns: dict[None, object] = {}
        # Whether data was read since the last wait for it.
        self._has_read = False

    @property
    def closed(self) -> bool:
        return self.resources.closed

    def interrupt(self) -> None:
        """Interrupts the running cell, if there is one. May be called from any thread."""
        link = self.resources.link
        if self.session.running and link is not None:
            link.interrupt()

    def close(self) -> None:
        """Ends the session without waiting. An active call raises `SessionClosed`. May be called from any
        thread, signal handler or finalizer."""
        session, self.resources.closed = self.session, True
        was_open, session.closed = session.load[0], True
        link = self.resources.link
        if link is None or link.connection.forked or self._turns.setdefault(None, _CLOSED) is _CLOSED:
            # The user probably opens another session, so a connection is prepared.
            self.resources.release()
            _supervisor.stand_by()
        else:
            link.shut_down()
        if was_open:
            _events.report(session, _events.INFO, "ended", "has ended: closed")

    def conduct(self, conversation: Actions[T]) -> Work[T]:
        """Runs a conversation and returns its result. Raises `SessionBusy` if another one is active.

        After an exception of the caller, a running cell is interrupted, and the conversation waits briefly
        for its end.
        """
        self._check()
        turn = object()
        try:
            self._begin(turn)
            result = yield from self._perform(conversation)
            self._is_open = False
            self._end()
            return result
        except BaseException as error:
            _events.refused(self.session, error)
            if self._turns.get(None) is turn:
                try:
                    # Releases the conversation's descriptors before another message is sent on the
                    # connection.
                    conversation.close()
                    yield from self._recover(error)
                finally:
                    self._end()
            raise

    @abstractmethod
    def wait(self, link: Link, events: int, deadline: float | None = None, wake: Any = None) -> Work[bool]:
        """Waits for one of these events of poll(2). Returns false when the deadline (in `time.monotonic`
        seconds) has passed or `wake` is done."""

    @abstractmethod
    def invoke(self, action: Invoke) -> Work[Any]:
        """Calls a function of the host."""

    @abstractmethod
    def in_thread(self, function: Callable[[], T]) -> Work[T]:
        """Calls a function that may block for a long time."""

    def check_process(self) -> None:
        """Raises `SessionForked` in a forked child of the process that created the driver."""
        if self._process is not _supervisor.this_process:
            raise SessionForked(
                f"this {self.session.noun} belongs to the process that this one was forked from: open one "
                "here"
            )

    def _check(self) -> None:
        """Raises `SessionForked` or `SessionClosed` if no conversation is possible."""
        self.check_process()
        if self.closed:
            raise SessionClosed(f"the {self.session.noun} is closed: open another one")

    def _begin(self, turn: object) -> None:
        """Takes the turn. Raises `SessionBusy` if another conversation has it."""
        if self._turns.setdefault(None, turn) is not turn:
            # Closing takes the turn too.
            self._check()
            raise SessionBusy(
                f"the {self.session.noun} is running something, for another thread or task or for the one "
                "whose tool or callback this is: it serves one caller at a time, so open one for each"
            )
        if self._is_open and self._is_connected:
            # A second exception arrived while the session recovered from the first.
            self._lose()
        self._is_open = True

    def _end(self) -> None:
        """Releases the turn."""
        self._turns.clear()
        if self.closed:
            self.resources.release()

    @property
    def _is_connected(self) -> bool:
        return self.resources.link is not None or self.session.decoder is not None

    @property
    def _is_intact(self) -> bool:
        """Whether the next bytes of the connection are the start of a frame."""
        link = self.resources.link
        return link is not None and link.decoder is self.session.decoder and not link.torn

    def _recover(self, error: BaseException) -> Work[None]:
        """Recovers from an exception: makes the session ready for the next request, or ends it."""
        if not self._is_connected:
            self._is_open = False
            return
        try:
            usable = self._is_intact and not isinstance(error, _FATAL)
            good = usable and (yield from self._settled())
        except BaseException:
            # The supervisor ended, or the caller was interrupted again: the first exception is reported.
            good = False
        if not good:
            self._lose(error)
        self._is_open = False

    def _settled(self) -> Work[bool]:
        """Settles the session after an exception of the caller. Returns whether it can serve another
        request."""
        return self._perform(self.session.settle())

    def _lose(self, error: BaseException | None = None) -> None:
        """Ends a session that cannot continue after this exception."""
        link, self.resources.link = self.resources.link, None
        self.session.lose(error, torn=link is not None and link.torn)
        if link is not None:
            link.close()

    def _perform(self, conversation: Actions[T]) -> Work[T]:
        try:
            action = next(conversation)
            while True:
                try:
                    result: Any = None
                    if isinstance(action, Receive):
                        result = yield from self._receive(action)
                    elif isinstance(action, Send):
                        yield from self._send(action)
                    elif isinstance(action, Invoke):
                        result = yield from self.invoke(action)
                    elif isinstance(action, Decode):
                        result = yield from self.in_thread(action.function)
                        # A tool of a session that was closed meanwhile is not called.
                        self._check()
                    else:
                        result = self._perform_now(action)
                except Exception as error:
                    action = conversation.throw(error)
                else:
                    action = conversation.send(result)
        except StopIteration as end:
            returned: T = end.value
            return returned

    def _perform_now(self, action: Action) -> Any:
        if isinstance(action, Connect):
            return self._connect()
        if isinstance(action, Interrupt):
            self._link.interrupt()
        else:
            _supervisor.stand_by()
        return None

    def _connect(self) -> tuple[Decoder, _supervisor.Supervisor | None, dict[str, Any]]:
        link = Link(_supervisor.connect(), blocking=self.blocking)
        if self.resources.link is not None:
            self.resources.link.close()
        self.resources.link = link
        caller = {"environ": link.connection.environ(), "import_paths": _supervisor.import_paths()}
        return link.decoder, link.connection.supervisor, caller

    @property
    def _link(self) -> Link:
        """The session's connection. Raises `ProtocolError` if there is none."""
        link = self.resources.link
        if link is None:
            raise ProtocolError("there is no connection")
        return link

    def _receive(self, action: Receive) -> Work[Frame | None]:
        link, deadline = self._link, action.deadline
        frame = self._next_frame(link.decoder)
        while frame is None:
            try:
                if not link.read(0 if deadline is None else DONT_WAIT):
                    raise link.gone()
                if self._has_read and not self.blocking:
                    # A guest may send faster than its messages are handled. Other tasks run, as with
                    # `asyncio.sleep(0)`.
                    yield
                self._has_read = True
                frame = self._next_frame(link.decoder)
            except BlockingIOError:
                self._has_read = False
                if not (yield from self.wait(link, select.POLLIN, deadline, action.wake)):
                    return None
        return frame

    def _next_frame(self, decoder: Decoder) -> Frame | None:
        """Returns the next frame other than a `state` message, whose content it records."""
        while (frame := decoder.next_frame()) is not None and frame.header["kind"] == "state":
            self.session.paused = frame.header.get("session") == "paused"
        return frame

    @property
    def paused(self) -> bool:
        """Whether the session is paused, according to the supervisor's latest message. Peeks at the socket
        without consuming data."""
        link, paused = self.resources.link, self.session.paused
        if link is not None and not self._turns:
            ahead = Decoder()
            ahead.feed(link.ahead())
            # If a conversation has begun meanwhile, the data may start in the middle of a frame.
            with suppress(ProtocolError):
                while (frame := ahead.next_frame()) is not None:
                    if frame.header["kind"] == "state":
                        paused = frame.header.get("session") == "paused"
        return paused and not self.closed

    def _send(self, action: Send) -> Work[None]:
        link = self._link
        data: bytes | memoryview = action.data
        descriptor = action.descriptor
        with link.writing:
            if isinstance(action, SendCell):
                # Set under the lock, so that any later interrupt is written after the cell.
                link.cancel_interrupt()
                self.session.running = True
            link.half_written = True
            while True:
                try:
                    written = link.write(data, descriptor)
                except BlockingIOError:
                    if (yield from self._make_room(link)):
                        continue
                    break
                if written == len(data):
                    break
                data, descriptor = memoryview(data)[written:], None
            link.half_written = False
        if self.session.running:
            link.flush_interrupt()

    def _make_room(self, link: Link) -> Work[bool]:
        """Waits until the socket accepts more data, and reads data that arrives meanwhile, because the
        supervisor may not read before its own data was read. Returns false when the peer is gone."""
        yield from self.wait(link, select.POLLIN | select.POLLOUT)
        try:
            return link.read(DONT_WAIT)
        except BlockingIOError:
            return True


class SyncDriver(Driver[C]):
    """The driver for blocking callers."""

    blocking = True

    @staticmethod
    def complete(work: Work[T]) -> T:
        """Runs work to completion and returns its result."""
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        raise AssertionError("blocking work does not yield")

    def perform(self, conversation: Actions[T]) -> T:
        """Runs a conversation and returns its result."""
        return self.complete(self.conduct(conversation))

    def wait(self, link: Link, events: int, deadline: float | None = None, wake: Any = None) -> Work[bool]:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return is_ready(link.fileno(), events, left)
        yield

    def invoke(self, action: Invoke) -> Work[Any]:
        if action.timeout is None or is_async(action.function):
            result = action.call()
        else:
            from . import _threads

            result = _threads.wait_for(_threads.start(action.call), action.timeout)
        if not inspect.isawaitable(result):
            return result
        # An awaitable is awaited in the sandbox's own event loop.
        from . import _threads

        # A local copy, because a signal handler may close the sandbox meanwhile.
        loop = self.resources.loop = self.resources.loop or _threads.LoopThread()
        return _threads.wait_for(loop.start(result), action.timeout)
        yield

    def in_thread(self, function: Callable[[], T]) -> Work[T]:
        return function()
        yield

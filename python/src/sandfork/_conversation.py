"""The common part of conversations with the supervisor. This module does no I/O.

A conversation is a generator. It yields an action, and a driver resumes it with the action's result or
exception. `Session` and `Batch` are conversations; `SyncDriver` and `AsyncDriver` perform their actions.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, NoReturn, TypeVar, Union

from . import _events, _reports
from ._blobs import NO_BUFFERS, OutgoingValue, discard, unpack
from ._exceptions import ProtocolError, SandforkError, SupervisorDied, SupervisorError, refused
from ._frames import Decoder, Frame, encode
from ._reports import SessionInfo
from ._result import Result

if TYPE_CHECKING:
    from ._supervisor import Supervisor

T = TypeVar("T")

VERSION = 2
# Bytes of a header that is decoded in less time than a thread takes to start, if it refers to no buffers.
_SMALL = 8 << 10
# Seconds for a cell to end after it is interrupted because its caller left.
_GRACE = 2.0
# Seconds for a copy of a session to be complete after its caller left. A copy cannot be interrupted.
_COPY_GRACE = 60.0


class Connect(NamedTuple):
    """Replace the connection to the supervisor with a new one. The result is its decoder, the supervisor, and
    the fields of the first message that describe this process."""


class StandBy(NamedTuple):
    """Prepare another connection for the next session, in the time while a first cell runs."""


class Interrupt(NamedTuple):
    """Ask the supervisor to interrupt the running cell."""


class Send(NamedTuple):
    """Write bytes, and optionally one descriptor with the first of them."""

    data: bytes
    descriptor: int | None = None


class SendCell(Send):
    """Write the bytes of a cell. The cell then runs and can be interrupted."""

    __slots__ = ()


class Receive(NamedTuple):
    """Wait for a frame. The result is the frame, or `None` when the deadline (in `time.monotonic` seconds)
    has passed or `wake`, a future of the event loop, is done. Raises `SupervisorDied` if the supervisor is
    gone."""

    deadline: float | None = None
    wake: Any = None


class Invoke(NamedTuple):
    """Call a function of the host. The result is the function's; an awaitable is awaited first.

    `timeout` is in seconds; when it has passed, `TimeoutError` is raised. With a timeout, a function that is
    not async runs in a thread, which is abandoned at the timeout.
    """

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    timeout: float | None = None

    def call(self) -> Any:
        return self.function(*self.args, **self.kwargs)


class Notify(Invoke):
    """Call a callback in the caller's own thread, and await its result if it is awaitable."""

    __slots__ = ()


class Decode(NamedTuple):
    """Call a function that decodes data from a guest. Decoding may take long, so an asyncio driver runs it in
    a thread. The result is the function's. Raises `SessionClosed` if the session is closed meanwhile."""

    function: Callable[[], Any]


Action = Union[Connect, StandBy, Interrupt, Send, Receive, Invoke, Decode]
Actions = Generator[Action, Any, T]
Handle = Callable[[Frame, Decoder], Actions[None]]
"""Handles an unsolicited message of the guest: `output`, `display`, `call` or `connect`."""
Complete = Callable[[Mapping[str, Any]], Actions[None]]
"""Handles the reply to a request whose caller has stopped waiting."""


_OF_COPIES = ("snapshot", "accepted", "opened")
_OF_GUESTS = ("output", "display", "call", "connect")

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


class Conversation:
    """The state of a connection. It sends one request at a time. Each request has a number, which the reply
    repeats."""

    noun = "session"
    """The noun for the conversation in error messages."""
    lost = "variables, imports and files are lost"
    """The consequence of its end, in error messages."""

    def __init__(self, opening: Mapping[str, Any], stdin: int | None = None) -> None:
        """`opening` is the first message, and `stdin` the descriptor that is passed with it."""
        self.ended: str | None = None
        """The reason why there is no worker; `None` while there is one."""
        self.under_way = 0
        """The number of the unanswered request, or 0."""
        self.running = False
        """Whether the unanswered request is a cell that was sent."""
        self.decoder: Decoder | None = None
        """The decoder of the connection; `None` without a connection."""
        self.info: SessionInfo | None = None
        self.supervisor: Supervisor | None = None
        """The supervisor at the other end of the latest connection."""
        self.supervised: int | None = None
        """The session's number in its supervisor, by which other connections refer to it."""
        self.waits = False
        """Whether the caller waits for a sandbox."""
        self.paused = False
        """Whether the supervisor has paused the session."""
        self.closed = False
        """Whether the caller has closed the conversation."""
        self.number = _events.enter(self)
        """The conversation's number in this process, as in log records."""
        self._opening = opening
        self._stdin = stdin
        self._number = 0
        # Completes the unanswered request, if that copies the session or replaces its state.
        self._complete: Complete | None = None
        # Several requests are unanswered while a session is established. An exception then loses the session.
        self._establishing = False
        # Whether the supervisor has reported a worker, or a batch, over this connection.
        self._has_started = False

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {self.noun} is neither pickled nor deep-copied: it belongs to the process that opened it"
        )

    @property
    def load(self) -> tuple[int, int, int]:
        """The open sessions, the running cells and the waiting requests of the conversation: 0 or 1 each."""
        if self.closed:
            return 0, 0, 0
        has_begun = self.decoder is not None and self.info is not None
        is_open = has_begun and self.ended is None and not self.waits
        return int(is_open), int(self.running and not self.waits), int(self.waits)

    def settle(self) -> Actions[bool]:
        """After an exception of the caller during a request: interrupts the running cell and waits briefly
        for its end. Returns whether the session can serve another request."""
        if self.decoder is None or self._establishing:
            return False
        if not self.under_way:
            # A descriptor that was received but not taken would be mistaken for a later one.
            return not self.decoder.drop_descriptors()
        complete = self._complete
        deadline = time.monotonic() + (_GRACE if complete is None else _COPY_GRACE)
        yield Interrupt()
        discard = discarding("the caller was interrupted")
        frame = yield from self._recv(("outcome", "file", *_OF_COPIES), self.under_way, discard, deadline)
        if frame is None:
            return False
        self.decoder.drop_descriptors()
        self._answered()
        if frame.header.get("session") == "ended":
            self.ended = "the session ended when its caller was interrupted"
        elif complete is not None and frame.header["kind"] in _OF_COPIES:
            yield from complete(frame.header)
        return True

    def lose(self, error: BaseException | None, *, torn: bool) -> None:
        """Marks the connection as unusable after this exception; the next request needs a new one. `torn`:
        whether the exception came in the middle of a message."""
        if torn:
            why = "an exception, as of a signal handler, came in the middle of a message"
        elif isinstance(error, SupervisorDied):
            why = "its supervisor died"
        elif isinstance(error, ProtocolError):
            why = "its supervisor could not be understood"
        elif isinstance(error, SandforkError):
            why = f"a request was refused: {type(error).__name__}"
        else:
            why = "its caller left it in the middle of something"
        self.ended = f"the {self.noun} ended when {why}: {self.lost}"
        self.decoder = None
        self._establishing = False
        self._answered()
        if self._has_started:
            self._has_started = False
            _events.report(self, _events.WARNING, "ended", f"has ended: {why}")

    # Parts of conversations.

    def _connect(self) -> Actions[Send]:
        """Replaces the connection with a new one. Returns the message that opens it."""
        self.decoder, self.supervisor, caller = yield Connect()
        return Send(encode({**self._opening, "version": VERSION, **caller}), self._stdin)

    def _opened(self, kind: str, number: int | None = None) -> Actions[dict[str, Any]]:
        """Waits for the supervisor's report on a worker, or on a batch, and returns it."""
        header = (yield from self._answer(kind, number)).header
        self._started(header)
        return header

    def _started(self, header: Mapping[str, Any]) -> None:
        """Processes the supervisor's report on a worker, or on a batch."""
        version = header.get("version")
        if version != VERSION:
            raise ProtocolError(
                f"the `sandfork` program speaks version {version} of the protocol and this package "
                f"version {VERSION}: install both from the same release"
            )
        self.info = _reports.session_info(header)
        number = header.get("session")
        self.supervised = number if type(number) is int else None
        self.waits = self.paused = False
        self._has_started = True
        level = self.info.enforced.level
        text = f"has started at level {level!r}" if level else "has started"
        _events.report(self, _events.INFO, "started", text)

    def _numbered(
        self,
        header: dict[str, Any],
        payload: bytes = b"",
        outgoing: OutgoingValue = NO_BUFFERS,
        kind: type[Send] = Send,
    ) -> Send:
        """Returns a request with the next number. It counts as unanswered from now on, so send it
        immediately."""
        self._number = header["id"] = number = self._number + 1
        send = message(header, payload, outgoing, kind)
        self.under_way = number
        return send

    def _send(self, header: dict[str, Any], outgoing: OutgoingValue = NO_BUFFERS) -> Actions[int]:
        """Sends a request and returns its number."""
        try:
            yield self._numbered(header, outgoing=outgoing)
            return self._number
        finally:
            outgoing.close()

    def _answer(self, kind: str, number: int | None = None, path: str = "") -> Actions[Frame]:
        """Waits for the reply to a request and returns it. Raises an error reply as an exception."""
        frame: Frame = yield from self._recv((kind,), number, discarding("no cell is running"))
        if frame.header["kind"] == "outcome":
            self._outcome(frame)
        self._answered()
        if frame.header["kind"] == "error":
            raise refused(frame.header, path)
        return frame

    def _recv(
        self, kinds: Sequence[str], number: int | None, handle: Handle, deadline: float | None = None
    ) -> Actions[Any]:
        """Receives the reply to a request: a frame of one of these kinds, or an `error`. Returns `None` at
        the deadline. Passes the guest's messages before the reply to `handle`."""
        while True:
            frame: Frame | None = yield Receive(deadline)
            if frame is None:
                return None
            kind = frame.header["kind"]
            if (kind == "error" or kind in kinds) and frame.header.get("id") == number:
                return frame
            if kind not in _OF_GUESTS:
                raise unexpected(frame.header)
            yield from handle(frame, self._incoming)
            # A guest may send messages without pause, so the deadline is checked after each one.
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def _outcome(self, frame: Frame) -> Sequence[memoryview]:
        """Returns the buffers of an outcome. Rejects an outcome that lacks a required field, and descriptors
        that no field refers to."""
        buffers = unpack(frame, self._incoming)
        self._check(frame.header)
        if frame.header.get("session") not in ("live", "ended"):
            raise ProtocolError("the supervisor sent an outcome that does not say whether the session lives")
        if self._incoming.drop_descriptors():
            raise ProtocolError("the supervisor passed a file that no message refers to")
        return buffers

    def _check(self, header: Mapping[str, Any]) -> None:
        """Raises `ProtocolError` for a result without its required fields."""
        outcome = header.get("outcome")
        if type(outcome) is not dict or type(outcome.get("status")) is not str:
            raise ProtocolError("the supervisor sent an outcome without a status")

    def _answered(self) -> None:
        self.under_way, self.running, self._complete = 0, False, None

    @property
    def _incoming(self) -> Decoder:
        """The connection's decoder. Requires a connection."""
        assert self.decoder is not None
        return self.decoder


def message(
    header: dict[str, Any],
    payload: bytes = b"",
    outgoing: OutgoingValue = NO_BUFFERS,
    kind: type[Send] = Send,
) -> Send:
    """Encodes a message, and adds the buffers of its values to the header."""
    if outgoing is NO_BUFFERS:
        return kind(encode(header, payload))
    header.update(outgoing.field)
    return kind(encode(header, outgoing.payload), outgoing.descriptor)


def decode(frame: Frame, function: Callable[[], T]) -> Actions[T]:
    """Decodes the values of a guest's message: small ones directly, large ones by a `Decode` action."""
    if frame.header_length <= _SMALL and "blob" not in frame.header:
        return function()
    found: T = yield Decode(function)
    return found


def discarding(why: str) -> Handle:
    """Returns a handler that discards a guest's output, refuses its calls for this reason, and makes no
    decision on connections."""

    def handle(frame: Frame, decoder: Decoder) -> Actions[None]:
        discard(frame, decoder)
        if frame.header["kind"] == "call":
            error = {"name": "RuntimeError", "message": why}
            yield message({"kind": "return", "call": frame.header.get("call"), "error": error})
        elif frame.header["kind"] == "connect":
            yield decision(frame.header, None)

    return handle


def decision(question: Mapping[str, Any], allowed: bool | None) -> Send:
    """Returns the message with a decision on a connection of the guest; `None` means no decision."""
    return message({"kind": "decide", "question": question.get("question"), "allowed": allowed})


def unexpected(header: Mapping[str, Any]) -> Exception:
    """Returns the exception for an unsolicited message: the reason why the connection is unusable, or a
    protocol violation."""
    if header["kind"] == "error":
        error = refused(header)
        return error if isinstance(error, SupervisorError) else SupervisorError(str(error))
    return ProtocolError(f"the supervisor sent {header['kind']!r} when nothing of the kind was due")

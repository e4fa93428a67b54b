"""A session, as conversations with its supervisor. This module does no I/O; see `_steps`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, TypeVar

from . import _blobs, _reports, _values
from ._calls import Calls
from ._cells import NO_CALLBACKS, Callbacks, follow, refused
from ._conversation import Conversation
from ._exceptions import (
    ProtocolError,
    RequestError,
    SessionEnded,
    SupervisorDied,
    UndefinedVariable,
    ValueTooLarge,
)
from ._execution import Execution
from ._frames import MAX_PAYLOAD, encode
from ._reports import SessionInfo
from ._steps import STAND_BY, Send, SendCell, Steps
from ._terminal import harmless
from ._tools import Tool, check_name

VERSION = 2
_LOST = "variables, imports and files are lost"
_REMEDY = 'call restart(), or open sessions with on_death="restart"'

T = TypeVar("T")


class Opening(NamedTuple):
    """The parameters with which a session is opened and reopened."""

    policy: Mapping[str, Any]
    overrides: tuple[str, ...] = ()
    tool_time: Mapping[str, float] = {"at_least": 0.0}
    variables: Mapping[str, Any] = {}
    stdin: int | None = None


class Cell(NamedTuple):
    """A cell to run."""

    source: bytes
    filename: str | None = None
    argv: tuple[str, ...] = ()
    last: str = "expression"
    then: str = "stay"
    wall: float | None = None
    callbacks: Callbacks = NO_CALLBACKS
    variables: Mapping[str, Any] | None = None


class Session(Conversation):
    """The state of a session, and its conversations with the supervisor."""

    def __init__(self, opening: Opening, calls: Calls, *, revive: bool) -> None:
        super().__init__()
        self.calls = calls
        self.info: SessionInfo | None = None
        self._opening = opening
        self._revive = revive
        self._cells = 0
        # Whether the next cell is the first after a restart.
        self._restarted = False

    def open(self) -> Steps[None]:
        """Connects and opens the session."""
        yield from self._connected(lambda: self._establish(self._open_message()))

    def opened(self) -> Steps[None]:
        """Opens the session if it is not open yet."""
        if self.link is None and self.ended is None:
            yield from self.open()

    def restart(self) -> Steps[None]:
        """Starts a new worker with the tools and the initial variables. Nothing else is kept."""
        if self.link is None:
            yield from self.open()
        else:
            restart = self.numbered({"kind": "restart"})
            yield from self._establish(restart, self.under_way)
        self._restarted = True

    def run(self, cell: Cell) -> Steps[Execution]:
        """Runs a cell. If the session has ended and `revive` is set, the cell runs in a fresh one."""
        return (yield from self._alive(lambda: self._run(cell)))

    def once(self, cell: Cell) -> Steps[Execution]:
        """Opens a session, runs one cell in it and ends it."""
        return (yield from self._connected(lambda: self._once(cell)))

    def set_variables(self, variables: Mapping[str, Any]) -> Steps[None]:
        """Sets globals of the guest."""
        return (yield from self._alive(lambda: self._set(variables)))

    def get(self, name: str) -> Steps[Any]:
        """The value of a global of the guest."""
        source = check_name(name, "a variable").encode()
        execution = yield from self.run(Cell(source, filename=f"<get {name}>"))
        error = execution.error
        if error is None:
            return execution.value
        if error.name == "NameError":
            raise UndefinedVariable(f"the session has no variable {name!r}")
        said = harmless(f"{error.name}: {error.value}")
        raise RequestError(f"the value of {name!r} could not be read: {said}")

    def add_tools(self, tools: Mapping[str, Tool]) -> Steps[None]:
        """Adds host tools, now and after each restart."""
        self.calls.tools.update(tools)
        header = {"kind": "tools", "tools": self.calls.declarations(tools)}
        return (yield from self._alive(lambda: self._define(header, "the tools")))

    def file(self, operation: str, path: str, **options: Any) -> Steps[Mapping[str, Any]]:
        """Sends a file request that returns no descriptor."""
        return (yield from self._alive(lambda: self._file(operation, path, options)))

    def open_file(self, operation: str, path: str, **options: Any) -> Steps[tuple[int, int]]:
        """Opens a file. Returns a descriptor, which the caller owns, and the file's size in bytes."""

        def opened() -> Steps[tuple[int, int]]:
            header = yield from self._file(operation, path, options)
            descriptor = self.live_link().decoder.take_descriptor()
            return descriptor, int(header.get("size") or 0)

        return (yield from self._alive(opened))

    def release(self) -> None:
        """Closes the guest's standard input."""
        if self._opening.stdin is not None:
            os.close(self._opening.stdin)

    # Parts of these conversations.

    def _connected(self, conversation: Callable[[], Steps[T]]) -> Steps[T]:
        """Has a conversation on a new connection. Retries once if the supervisor dies before it has
        reported that the session is open, because no guest code has run by then."""
        self.info = None
        yield from self.connect()
        try:
            return (yield from conversation())
        except SupervisorDied:
            if self.info is not None:
                raise
        yield from self.connect()
        return (yield from conversation())

    def _alive(self, conversation: Callable[[], Steps[T]]) -> Steps[T]:
        """Has a conversation in a live session: the current one, or a fresh one if `revive` is set."""
        yield from self.opened()
        if self.ended is None:
            try:
                return (yield from conversation())
            except SessionEnded as error:
                # The session ended between two requests, by its idle time or its age.
                self.ended = str(error)
        if not self._revive:
            raise SessionEnded(f"{self.ended}; {_REMEDY}")
        yield from self.restart()
        return (yield from conversation())

    def _open_message(self) -> Send:
        opening = self._opening
        header = {
            "kind": "open",
            "version": VERSION,
            "policy": opening.policy,
            "set": opening.overrides,
            "environ": self.live_link().connection.environ(),
            "tool_time": opening.tool_time,
        }
        if opening.stdin is not None:
            header["stdin"] = True
        return Send(encode(header), opening.stdin)

    def _establish(self, first: Send, restart: int | None = None) -> Steps[None]:
        """Sends `first` and the requests that set up a session. `restart` is the number of `first` if it
        restarts a session."""
        tools = self.calls.declarations()
        variables, outgoing = self._variables(self._opening.variables)
        requests: list[tuple[str, dict[str, Any], _blobs.Outgoing | None]] = []
        if tools:
            requests.append(("the tools", {"kind": "tools", "tools": tools}, None))
        if variables:
            header = {"kind": "set", "variables": variables}
            requests.append(("the variables", header, outgoing))
        self._establishing = True
        yield first
        # The first request is sent ahead, so that it is ready with the worker. A session serves one request
        # at a time.
        numbers = []
        for _, header, binary in requests[:1]:
            numbers.append((yield from self.ask(header, outgoing=binary)))
        yield from self._opened(restart)
        for what, header, binary in requests:
            number = numbers.pop() if numbers else (yield from self.ask(header, outgoing=binary))
            yield from self._defined(number, what)
        self._establishing = False
        self.ended = None
        self._cells = 0

    def _opened(self, restart: int | None = None) -> Steps[None]:
        frame = yield from self.answer("opened", restart)
        version = frame.header.get("version")
        if version != VERSION:
            raise ProtocolError(
                f"the `sandfork` program speaks version {version} of the protocol and this package "
                f"version {VERSION}: install both from the same release"
            )
        self.info = _reports.session_info(frame.header)

    def _once(self, cell: Cell) -> Steps[Execution]:
        header, source = self._cell_header(cell), checked(cell.source)
        opening, sent = self._open_message(), self.numbered(header, source)
        # Both messages are sent at once, so that the code is ready with the worker.
        yield Send(opening.data + sent.data, opening.descriptor)
        number = self.under_way
        yield from self._opened()
        self.under_way = number
        self.running = True
        return (yield from self._follow(cell))

    def _run(self, cell: Cell) -> Steps[Execution]:
        source = checked(cell.source)
        if cell.variables:
            yield from self._set(cell.variables)
        sent = self.numbered(self._cell_header(cell), source)
        yield SendCell(sent.data)
        return (yield from self._follow(cell))

    def _cell_header(self, cell: Cell) -> dict[str, Any]:
        self._cells += 1
        callbacks = cell.callbacks
        header: dict[str, Any] = {
            "kind": "cell",
            "filename": cell.filename or f"<cell {self._cells}>",
            "argv": cell.argv,
            "last": cell.last,
            "then": cell.then,
            "stream": callbacks.stdout is not None or callbacks.stderr is not None,
        }
        if cell.wall is not None:
            header["wall"] = cell.wall
        return header

    def _follow(self, cell: Cell) -> Steps[Execution]:
        link, info = self.live_link(), self.info
        assert info is not None
        if self._cells == 1:
            # Connects while the caller waits for the cell, rather than while a session is opened.
            yield STAND_BY
        execution = yield from follow(
            self.under_way,
            link,
            self.calls,
            cell.callbacks,
            info=info,
            wall=cell.wall,
            restarted=self._restarted,
        )
        self.running, self.under_way = False, 0
        link.cancel_interrupt()
        if not isinstance(execution, Execution):
            raise refused(execution)
        self._restarted = False
        if execution.session == "ended":
            error = execution.error
            how = execution.status if error is None else harmless(f"{execution.status}: {error.value}")
            self.ended = f"the session ended with its cell {execution.execution_count} ({how}): {_LOST}"
        return execution

    def _set(self, variables: Mapping[str, Any]) -> Steps[None]:
        trees, outgoing = self._variables(variables)
        yield from self._define({"kind": "set", "variables": trees}, "the variables", outgoing)

    def _variables(self, variables: Mapping[str, Any]) -> tuple[list[Any], _blobs.Outgoing | None]:
        encoder = _values.Encoder()
        trees = [[check_name(name, "a variable"), encoder.encode(v)] for name, v in variables.items()]
        limits = self.info.limits if self.info is not None else {}
        return trees, _blobs.pack(encoder.buffers, limits.get("limits.memory", _blobs.LARGEST))

    def _define(
        self, header: dict[str, Any], what: str, outgoing: _blobs.Outgoing | None = None
    ) -> Steps[None]:
        number = yield from self.ask(header, outgoing=outgoing)
        yield from self._defined(number, what)

    def _defined(self, number: int, what: str) -> Steps[None]:
        """Waits for the outcome of a request that sets something in the guest."""
        frame = yield from self.answer("outcome", number)
        outcome = frame.header["outcome"]
        if outcome["status"] == "ok":
            return
        error = outcome.get("error") or {}
        said = harmless(str(error.get("message") or outcome["status"]))
        if frame.header["session"] == "ended":
            raise SessionEnded(f"the session ended while it was given {what} ({said}): {_LOST}")
        raise RequestError(f"the guest could not be given {what}: {said}")

    def _file(self, operation: str, path: str, options: Mapping[str, Any]) -> Steps[Mapping[str, Any]]:
        header = {"kind": "file", "op": operation, "path": path, **options}
        number = yield from self.ask(header)
        frame = yield from self.answer("file", number, path)
        return frame.header


def checked(source: bytes) -> bytes:
    """Returns the source. Raises `ValueTooLarge` if it does not fit into a message."""
    if len(source) > MAX_PAYLOAD:
        raise ValueTooLarge(
            f"the code is {len(source)} bytes long, more than the {MAX_PAYLOAD} of a message: write it "
            "to a file of the session and import it"
        )
    return source

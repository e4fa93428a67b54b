"""The state of a session and its request-response exchanges. This module does no I/O; see `_conversation`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, TypeVar

from . import _blobs, _copies, _events, _reports, _values
from ._calls import Calls, declarations
from ._conversation import (
    Actions,
    Callbacks,
    Conversation,
    Decode,
    Send,
    SendCell,
    StandBy,
    decision,
)
from ._exceptions import (
    ProtocolError,
    RequestError,
    SessionEnded,
    SupervisorDied,
    UndefinedVariable,
    refused,
)
from ._execution import Execution, Logs
from ._frames import Decoder, Frame
from ._output import Output
from ._tools import Tool, check_name
from ._values import harmless

_REMEDY = 'call restart(), or open sessions with on_death="restart"'
_STATES = ("snapshot", "saved")

T = TypeVar("T")


class Cell(NamedTuple):
    """A cell to run."""

    source: bytes
    filename: str | None = None
    argv: tuple[str, ...] = ()
    last: str = "expression"
    then: str = "stay"
    wall: float | None = None
    callbacks: Callbacks = Callbacks()
    variables: Mapping[str, Any] = {}


class Session(Conversation):
    """The state of a session, and its conversations with the supervisor."""

    def __init__(
        self,
        opening: Mapping[str, Any],
        calls: Calls,
        *,
        stdin: int | None = None,
        variables: Mapping[str, Any] = {},
        revive: bool = False,
    ) -> None:
        super().__init__(opening, stdin)
        self.cells = 0
        """The number of cells that have ended, over restarts."""
        self.usage = _reports.Total()
        """The resources that these cells used."""
        self._calls = calls
        self.tools: Mapping[str, Tool] = calls.tools
        """The host tools, by name."""
        self._variables = variables
        self._revive = revive
        self.named = 0
        """The number of cells that were assigned a name."""
        self.failures = 0
        """The number of the caller's cells whose status was not `ok`."""
        # The tools that a fork declares in addition to those in its snapshot.
        self._added: Mapping[str, Tool] = {}
        self._inherited = 0
        self.origin: int | None = None
        """The number of the session from which this one was forked."""
        # Whether the next cell is the first after a restart.
        self._restarted = False

    def open(self) -> Actions[None]:
        """Connects and opens the session."""
        yield from self._connected(self._establish)

    def opened(self) -> Actions[None]:
        """Opens the session if it is not open yet."""
        if self.decoder is None and self.ended is None:
            yield from self.open()

    def restart(self) -> Actions[None]:
        """Starts a new worker with the tools and the initial variables. Nothing else is kept, not even the
        state of a snapshot from which the session started."""
        self._opening = _without_state(self._opening)
        self._inherited = 0
        if self.decoder is None:
            yield from self.open()
        else:
            restart = self._numbered({"kind": "restart"})
            self.waits = True
            try:
                yield from self._establish(restart, self.under_way)
            finally:
                self.waits = False
        self._restarted = True

    def snapshot(self) -> Actions[tuple[int, int]]:
        """Copies the session's state. Returns the snapshot's number and its size."""

        def free(header: Mapping[str, Any]) -> Actions[None]:
            return _copies.discarded(self, header)

        header = yield from self._in_live_session(lambda: _copies.copied(self, "snapshot", "snapshot", free))
        found, size = header.get("snapshot"), header.get("bytes")
        if type(found) is not int or type(size) is not int:
            raise ProtocolError("the supervisor sent a snapshot without its number and size")
        return found, size

    def pause(self) -> Actions[None]:
        """Saves the session to disk and ends its process until the next use."""
        yield from self._in_live_session(lambda: _copies.copied(self, "pause", "accepted", _copies.paused))

    def forked(self, snapshot: int, cells: int, tools: Mapping[str, Tool] | None) -> Session:
        """Returns a session that will start from a snapshot. `cells` continues the numbering of cell
        names."""
        opening = {**_without_state(self._opening), "snapshot": snapshot}
        calls = self._calls.renewed(tools)
        session = Session(opening, calls, variables=self._variables, revive=self._revive)
        session._added = tools or {}
        session._inherited, session.origin = cells, self.number
        return session

    def rollback(self, snapshot: int, cells: int, added: Mapping[str, Tool]) -> Actions[None]:
        """Restores the session to a snapshot, even if it has ended, and declares the tools `added` since
        then."""
        if self.decoder is None:
            raise SessionEnded(f"{self.ended or 'the session is not open'}; {_REMEDY}")
        request = self._numbered({"kind": "rollback", "snapshot": snapshot})
        number = self.under_way
        yield request

        def complete(header: Mapping[str, Any]) -> Actions[None]:
            self._started(header)
            self.ended = None
            self.named = cells
            if added:
                yield from self._define("the tools", declarations(added.values()))

        self._complete = complete
        yield from complete((yield from self._answer("opened", number)).header)

    def run(self, cell: Cell) -> Actions[Execution]:
        """Runs a cell. If the session has ended and `revive` is set, the cell runs in a fresh one."""
        return self._in_live_session(lambda: self._run(cell))

    def once(self, cell: Cell) -> Actions[Execution]:
        """Opens a session, runs one cell in it and ends it."""
        return self._connected(lambda opening: self._once(opening, cell))

    def set_variables(self, variables: Mapping[str, Any]) -> Actions[None]:
        """Sets globals of the guest."""
        return self._in_live_session(lambda: self._define("the variables", *self._set(variables)))

    def get(self, name: str) -> Actions[Any]:
        """Returns the value of a global of the guest."""
        source = check_name(name, "a variable").encode()
        failures = self.failures
        execution = yield from self.run(Cell(source, filename=f"<get {name}>"))
        # The caller's transactions ignore this internal cell.
        self.failures = failures
        error = execution.error
        if error is None:
            return (yield Decode(lambda: execution.value))
        if error.name == "NameError":
            raise UndefinedVariable(f"the session has no variable {name!r}")
        message = harmless(f"{error.name}: {error.value}")
        raise RequestError(f"the value of {name!r} could not be read: {message}")

    def add_tools(self, tools: Mapping[str, Tool]) -> Actions[None]:
        """Adds host tools, now and after each restart."""
        self._calls.tools.update(tools)
        return (
            yield from self._in_live_session(lambda: self._define("the tools", declarations(tools.values())))
        )

    def file(self, operation: str, path: str, **options: Any) -> Actions[dict[str, Any]]:
        """Sends a file request and returns the reply. The reply to an open request contains a `descriptor`,
        which the caller owns."""

        def request() -> Actions[dict[str, Any]]:
            number = yield from self._send({"kind": "file", "op": operation, "path": path, **options})
            frame = yield from self._answer("file", number, path)
            if operation.startswith("open"):
                frame.header["descriptor"] = self._incoming.take_descriptor()
            return frame.header

        return self._in_live_session(request)

    def _decide(self, header: Mapping[str, Any]) -> Actions[None]:
        """Sends a decision on a connection of the guest."""
        host, port, addresses = header.get("host"), header.get("port"), header.get("addresses")
        if not isinstance(host, str) or type(port) is not int or not isinstance(addresses, list):
            raise ProtocolError("the supervisor asked about a connection without saying which")
        allowed = None
        try:
            allowed = yield from self._calls.decide(host, port, tuple(map(str, addresses)))
        except Exception as error:
            message = f"refused a connection: on_connect raised {type(error).__name__}"
            _events.report(self, _events.WARNING, "undecided", message, error=type(error).__name__)
        yield decision(header, allowed)

    def release(self) -> None:
        """Closes the guest's standard input."""
        if self._stdin is not None:
            os.close(self._stdin)

    # Parts of these conversations.

    def _connected(self, conversation: Callable[[Send], Actions[T]]) -> Actions[T]:
        """Runs a conversation on a new connection. Retries once if the supervisor dies before it has
        reported that the session is open, because no guest code has run by then."""
        self.info = None
        self.waits = True
        try:
            try:
                return (yield from conversation((yield from self._connect())))
            except SupervisorDied:
                if self.info is not None:
                    raise
            return (yield from conversation((yield from self._connect())))
        finally:
            self.waits = False

    def _in_live_session(self, conversation: Callable[[], Actions[T]]) -> Actions[T]:
        """Runs a conversation in a live session: the current one, or a fresh one if `revive` is set."""
        if self.decoder is None:
            yield from self.opened()
        if self.ended is None:
            try:
                return (yield from conversation())
            except SessionEnded as error:
                # The session may have ended between two requests, by its idle time or its age. The message is
                # built here, because its remedy is specific to Python.
                self.ended = str(error)
                if error._why is not None:
                    self.ended = f"the session has ended because {error._why}: {self.lost}"
        if not self._revive:
            raise SessionEnded(f"{self.ended}; {_REMEDY}")
        yield from self.restart()
        return (yield from conversation())

    def _establish(self, first: Send, restart: int | None = None) -> Actions[None]:
        """Sends `first` and the requests that set up a session. `restart` is the number of `first` if it
        restarts a session."""
        requests: list[tuple[str, dict[str, Any], _blobs.OutgoingValue]] = []
        # The snapshot of a fork contains the tools and variables. A saved state contains the tools of another
        # process, so the tools are declared again.
        is_fork = "snapshot" in self._opening
        tools = self._added if is_fork else self._calls.tools
        if tools:
            requests.append(("the tools", declarations(tools.values()), _blobs.NO_BUFFERS))
        if self._variables and not is_fork:
            requests.append(("the variables", *self._set(self._variables)))
        try:
            self._establishing = True
            yield first
            # The first request is sent ahead, so that it is ready with the worker. A session serves one
            # request at a time.
            number = (yield from self._send(*requests[0][1:])) if requests else 0
            cells = (yield from self._opened("opened", restart)).get("cells")
            for index, (what, header, outgoing) in enumerate(requests):
                if index > 0:
                    number = yield from self._send(header, outgoing)
                yield from self._defined(what, number)
        finally:
            for _, _, outgoing in requests:
                outgoing.close()
        self._establishing = False
        self.ended = None
        self.named = cells if "saved" in self._opening and type(cells) is int else self._inherited

    def _once(self, opening: Send, cell: Cell) -> Actions[Execution]:
        sent = self._cell_message(cell)
        number = self.under_way
        # Both messages are sent at once, so that the code is ready with the worker.
        yield Send(opening.data + sent.data, opening.descriptor)
        yield from self._opened("opened")
        self.under_way = number
        self.running = True
        return (yield from self._follow(cell))

    def _run(self, cell: Cell) -> Actions[Execution]:
        if cell.variables:
            yield from self._define("the variables", *self._set(cell.variables))
        yield self._cell_message(cell)
        return (yield from self._follow(cell))

    def _cell_message(self, cell: Cell) -> Send:
        self.named += 1
        # Fields with default values are not sent.
        header: dict[str, Any] = {"kind": "cell", "filename": cell.filename or f"<cell {self.named}>"}
        if cell.argv:
            header["argv"] = cell.argv
        if cell.last != "expression":
            header["last"] = cell.last
        if cell.then != "stay":
            header["then"] = cell.then
        if cell.callbacks.stdout is not None or cell.callbacks.stderr is not None:
            header["stream"] = True
        if cell.wall is not None:
            header["wall"] = cell.wall
        return self._numbered(header, cell.source, kind=SendCell)

    def _follow(self, cell: Cell) -> Actions[Execution]:
        """Handles the messages of a cell until it ends, or raises the error because of which it did not
        run."""
        if self.named == 1:
            # Connects while the caller waits for the cell, rather than while a session is opened.
            yield StandBy()
        output: Output | None = None

        def handle(frame: Frame, decoder: Decoder) -> Actions[None]:
            nonlocal output
            if frame.header["kind"] == "call":
                return self._calls.answer(frame, decoder, self._room)
            if frame.header["kind"] == "connect":
                return self._decide(frame.header)
            # Most cells are silent.
            output = output or Output(cell.callbacks)
            return output.add(frame, decoder)

        frame: Frame = yield from self._recv(("outcome",), self.under_way, handle)
        self._answered()
        if frame.header["kind"] == "error":
            raise refused(frame.header)
        buffers = self._calls.settle(frame.header, self._outcome(frame))
        logs, shown = Logs([], []), []
        if output is not None:
            yield from output.end()
            logs, shown = output.logs, output.shown
        restarted, self._restarted = self._restarted, False
        assert self.info is not None
        header = frame.header
        execution = Execution(
            header, logs, shown, self.info, buffers=buffers, wall=cell.wall, restarted=restarted
        )
        outcome = header["outcome"]
        self.usage.add(outcome.get("usage", {}))
        self.cells += 1
        self.failures += outcome["status"] != "ok"
        _events.cell_ended(self, outcome, "cell", header.get("execution_count"))
        if header["session"] == "ended":
            _events.report(self, _events.INFO, "ended", f"has ended with its cell: {execution.status}")
            error = execution.error
            how = execution.status if error is None else harmless(f"{execution.status}: {error.value}")
            self.ended = f"the session ended with its cell {execution.execution_count} ({how}): {self.lost}"
        return execution

    def _set(self, variables: Mapping[str, Any]) -> tuple[dict[str, Any], _blobs.OutgoingValue]:
        encoder = _values.Encoder()
        trees = [[check_name(name, "a variable"), encoder.encode(v)] for name, v in variables.items()]
        return {"kind": "set", "variables": trees}, _blobs.pack(encoder.buffers, self._room)

    @property
    def _room(self) -> float:
        """The guest's memory in bytes, as far as known."""
        limits = self.info.limits if self.info is not None else {}
        return limits.get("limits.memory", _blobs.LARGEST)

    def _define(
        self, what: str, header: dict[str, Any], outgoing: _blobs.OutgoingValue = _blobs.NO_BUFFERS
    ) -> Actions[None]:
        number = yield from self._send(header, outgoing)
        yield from self._defined(what, number)

    def _defined(self, what: str, number: int) -> Actions[None]:
        """Waits for the outcome of a request that sets something in the guest."""
        frame = yield from self._answer("outcome", number)
        outcome = frame.header["outcome"]
        if outcome["status"] == "ok":
            return
        error = outcome.get("error") or {}
        message = harmless(str(error.get("message") or outcome["status"]))
        if frame.header["session"] == "ended":
            raise SessionEnded(f"the session ended while it was given {what} ({message}): {self.lost}")
        raise RequestError(f"the guest could not be given {what}: {message}")


def _without_state(opening: Mapping[str, Any]) -> dict[str, Any]:
    """The message that opens a session without a state."""
    return {name: field for name, field in opening.items() if name not in _STATES}

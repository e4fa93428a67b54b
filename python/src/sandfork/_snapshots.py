"""Snapshots of a session's state, and sandboxes that are forked from them."""

from __future__ import annotations

import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from . import _supervisor
from ._conversation import Actions, unexpected
from ._driver import Work
from ._exceptions import RequestError, SupervisorDied, refused
from ._files import Path
from ._frames import Decoder, encode
from ._options import absolute
from ._tools import Tools, collect

if TYPE_CHECKING:
    from ._sandbox import BaseSandbox, Sandbox
    from ._session import Session
    from ._supervisor import Supervisor

S = TypeVar("S", bound="BaseSandbox")
# Seconds for the supervisor to free a snapshot.
_GRACE = 5.0
_ENDED = "the supervisor has ended, and the snapshot with it"


class BaseSnapshot(Generic[S]):
    """The part of `Snapshot` and `AsyncSnapshot` that does not wait for the supervisor."""

    def __init__(self, sandbox: S, number: int, size: int) -> None:
        self.size = size
        """The memory that the snapshot takes in addition to earlier ones, in bytes."""
        self.number = number
        self._made_by = sandbox
        self._tools = frozenset(sandbox._session.tools)
        self.cells = sandbox._session.named
        """The number of cells that the sandbox had run."""
        # The supervisor that holds the snapshot.
        self._supervisor = sandbox._session.supervisor
        self._end = weakref.finalize(self, _discard, number, self._supervisor)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._end.alive

    def close(self) -> None:
        """Frees the snapshot's memory. Sandboxes that were forked from it are not affected. May be called
        again."""
        detached = self._end.detach()
        connection = None if detached is None else _discarding(*detached[2])
        if connection is not None:
            with connection, suppress(OSError):
                # Waits for the reply, because until then the snapshot counts against the session's limit.
                connection.settimeout(_GRACE)
                connection.recv(64)

    def _saving(self, path: Path) -> Work[int]:
        """Saves the snapshot to a file."""
        self._require_open()
        request = {"kind": "save", "snapshot": self.number, "path": absolute(path)}
        return (yield from self._made_by._driver.in_thread(lambda: _saved(request, self._supervisor)))

    def _forked(self, tools: Tools | None) -> S:
        """Returns a sandbox that will start from the snapshot."""
        self._require_open()
        made_by = self._made_by
        forked: S = object.__new__(type(made_by))
        forked._timeout, forked._callbacks = made_by._timeout, made_by._callbacks
        others = None if tools is None else collect(tools)
        forked._session = made_by._session.forked(self.number, self.cells, others)
        return forked

    def _require_open(self) -> None:
        self._made_by._driver.check_process()
        if self.closed:
            raise RequestError("the snapshot is closed: take another")
        if _supervisor.is_gone(self._supervisor):
            raise SupervisorDied(_ENDED)

    def restore_into(self, session: Session) -> Actions[None]:
        """Restores a session to this state, and declares the tools that were added to it since then."""
        self._require_open()
        added = {name: tool for name, tool in session.tools.items() if name not in self._tools}
        return session.rollback(self.number, self.cells, added)

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<{type(self).__name__} {self.number}{state} size={self.size}>"


class Snapshot(BaseSnapshot["Sandbox"]):
    """The state of a sandbox between two cells: variables, imports, functions, generators, open files and the
    files of `/work`, `/tmp` and `/dev/shm`. `Sandbox.snapshot` takes it.

        with sbx.snapshot() as snap:
            branches = snap.fork(8)

    The snapshot outlives its sandbox. Forks of one snapshot share their address layout: use them for one
    tenant. The snapshot occupies memory of the host until `close`, the end of its `with` block, or garbage
    collection.
    """

    @overload
    def fork(self, n: None = None, *, tools: Tools | None = None) -> Sandbox: ...
    @overload
    def fork(self, n: int, *, tools: Tools | None = None) -> list[Sandbox]: ...
    def fork(self, n: int | None = None, *, tools: Tools | None = None) -> Sandbox | list[Sandbox]:
        """Opens a sandbox with a copy of this state, or a list of `n` independent ones.

        A fork calls the same host tools as the sandbox that took the snapshot, or `tools` instead.
        """
        if n is None:
            return self._fork(tools)
        forks: list[Sandbox] = []
        try:
            # Opened one after another, so that all are closed if one fails.
            forks.extend(self._fork(tools) for _ in range(checked_number(n)))
        except BaseException:
            for fork in forks:
                fork.close()
            raise
        return forks

    def _fork(self, tools: Tools | None) -> Sandbox:
        forked = self._forked(tools)
        forked._begin()
        return forked

    def save(self, path: Path) -> int:
        """Saves the snapshot to a file, from which `Sandbox.resume` can start in this process or another.
        Returns the file's length in bytes.

        Only this user can read the file. An existing file is replaced atomically. It can be resumed until the
        machine reboots, with the same policy, interpreter and version of Sandfork.
        """
        return self._made_by._driver.complete(self._saving(path))

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def checked_number(n: object) -> int:
    if type(n) is not int or n < 1:
        raise RequestError(f"n is {n!r}: give the number of forks, or None for a single sandbox")
    return n


def checked_snapshot(snapshot: object) -> BaseSnapshot[Any]:
    if not isinstance(snapshot, BaseSnapshot):
        raise RequestError(f"snapshot is of type {type(snapshot).__name__}: give what `snapshot()` returned")
    return snapshot


@contextmanager
def roll_back_on_failure(sandbox: Sandbox) -> Iterator[Snapshot]:
    """Rolls a sandbox back if one of the block's cells fails, or the block raises."""
    with sandbox.snapshot() as snapshot:
        failures = sandbox._session.failures
        failed = True
        try:
            yield snapshot
            failed = sandbox._session.failures != failures
        finally:
            if failed and not sandbox._driver.closed:
                sandbox.rollback(snapshot)


def _saved(request: dict[str, Any], supervisor: Supervisor | None) -> int:
    """Asks the supervisor to save a snapshot, and waits for the reply. Returns the file's length."""
    connected = _asking(request, supervisor)
    if connected is None:
        raise SupervisorDied(_ENDED)
    decoder = Decoder()
    with connected:
        while (frame := decoder.next_frame()) is None:
            received = connected.recv(4096)
            if not received:
                raise SupervisorDied("the supervisor ended while it saved the snapshot")
            decoder.feed(received)
    if frame.header["kind"] == "error":
        raise refused(frame.header)
    length = frame.header.get("bytes")
    if frame.header["kind"] != "saved" or type(length) is not int:
        raise unexpected(frame.header)
    return length


def _discard(number: int, supervisor: Supervisor | None) -> None:
    """Discards a snapshot without waiting for the supervisor."""
    connected = _discarding(number, supervisor)
    if connected is not None:
        connected.close()


def _discarding(number: int, supervisor: Supervisor | None) -> socket.socket | None:
    """Asks the supervisor to free a snapshot. Returns the connection on which it replies."""
    return _asking({"kind": "discard", "snapshot": number}, supervisor)


def _asking(request: dict[str, Any], supervisor: Supervisor | None) -> socket.socket | None:
    """Sends a request on a new connection, which it returns for the reply. `None` if the supervisor has
    ended."""
    connected = _supervisor.connect_to(supervisor)
    if connected is None:
        return None
    try:
        connected.sendall(encode(request))
    except OSError:
        connected.close()
        return None
    return connected

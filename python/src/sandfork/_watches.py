"""Watches of a session's directories, concurrently with its cells.

Each watch has a separate connection to the supervisor, so that events arrive even while a cell runs.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

from ._commands import in_live_session
from ._conversation import Actions, Receive, unexpected
from ._driver import Driver, SyncDriver, Work
from ._exceptions import ProtocolError, SessionClosed, SupervisorDied
from ._options import checked_function
from ._programs import Beside
from ._session import Session
from ._tools import check_seconds
from ._values import harmless

_TYPES = frozenset(("create", "write", "remove", "rename", "chmod", "overflow"))


class FileEvent(NamedTuple):
    """A change of an entry in a watched directory."""

    type: str
    """`create` (created, or moved here), `write`, `remove`, `rename` (moved away), `chmod` (mode, times or
    other attributes changed), or `overflow`: events were lost, or there are more directories than can be
    watched, so read the whole directory again."""
    path: str
    """The path relative to the watched directory; `.` for `overflow`."""


OnEvent = Callable[[FileEvent], Any]


class Watching(Beside):
    """The conversation of a watch."""

    noun = "watch"
    lost = "watch the directory anew"

    why: str | None = None
    """The reason why the watch has ended, once that is known."""

    def receive(self, deadline: float | None) -> Actions[list[FileEvent]]:
        """Receives the next events; none at the deadline, or after the watch has ended."""
        if self.why is not None:
            return []
        frame = yield Receive(deadline)
        if frame is None:
            return []
        header = frame.header
        if header["kind"] == "ended":
            self.why = harmless(str(header.get("why")))
            return []
        if header["kind"] != "changes":
            raise unexpected(header)
        return list(map(_event, header["events"]))


def watched(
    driver: Driver[Session], kind: Callable[..., Any], path: str, recursive: bool, on_event: OnEvent | None
) -> Work[Any]:
    """Starts to watch a directory."""
    checked_function(on_event, "on_event")

    def begin(of_session: int) -> Work[Any]:
        opening = {"kind": "watch", "session": of_session, "path": path, "recursive": recursive}
        beside: Any = type(driver)(Watching(opening))  # type: ignore[arg-type]
        watch = kind(beside, path)
        try:
            yield from beside.conduct(beside.session.open("watching", path))
        except BaseException:
            beside.close()
            raise
        return watch

    watch = yield from in_live_session(driver, begin)
    if on_event is not None:
        watch._call(on_event)
    return watch


def _event(one: Any) -> FileEvent:
    kind = one.get("type")
    if kind not in _TYPES:
        raise ProtocolError(f"the supervisor reported {kind!r} of a file")
    return FileEvent(kind, str(one.get("path", ".")))


class BaseFileWatch:
    """The part of `FileWatch` and `AsyncFileWatch` that does not wait for events."""

    __slots__ = ("__weakref__", "_driver", "_of_callback", "path")

    def __init__(self, driver: Driver[Watching], path: str) -> None:
        self._driver = driver
        self._of_callback: Any = None
        # The end of the connection ends the watch.
        weakref.finalize(self, driver.resources.close)
        self.path = path
        """The watched directory."""

    @property
    def ended(self) -> str | None:
        """The reason why the watch has ended, if its end was received."""
        return "it was closed" if self._driver.closed else self._driver.session.why

    def _received(self, timeout: float | None) -> Work[list[FileEvent]]:
        seconds = 0 if timeout == 0 else check_seconds(timeout, "timeout")
        deadline = None if seconds is None else time.monotonic() + seconds
        while self.ended is None:
            try:
                events = yield from self._driver.conduct(self._driver.session.receive(deadline))
            except (SessionClosed, SupervisorDied):
                if not self._driver.closed:
                    raise
                break
            if events or (deadline is not None and time.monotonic() >= deadline):
                return events
        return []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r} {self.ended or 'watching'}>"


class FileWatch(BaseFileWatch):
    """A watch of a directory, until it is closed or garbage-collected, or its session ends. It is an iterable
    of events, and a context manager that closes the watch.

    Unread events are queued up to a maximum; `overflow` then reports that events were lost.
    """

    __slots__ = ()

    _driver: SyncDriver[Watching]

    def events(self, timeout: float | None = None) -> list[FileEvent]:
        """Waits for the next events, at most `timeout` seconds. The list is empty at the timeout, or if the
        watch has ended (see `ended`)."""
        return self._driver.complete(self._received(timeout))

    def close(self) -> None:
        """Ends the watch. A thread that waits for events gets an empty list. May be called again, and from
        any thread."""
        self._driver.close()

    def _call(self, on_event: OnEvent) -> None:
        def call() -> None:
            for event in self:
                on_event(event)

        # A daemon, so that a watch does not keep the process from exiting.
        self._of_callback = threading.Thread(target=call, name="sandfork-watch", daemon=True)
        self._of_callback.start()

    def __iter__(self) -> Iterator[FileEvent]:
        while self.ended is None:
            yield from self.events()

    def __enter__(self) -> FileWatch:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

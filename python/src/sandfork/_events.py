"""Observability for operators: counts of this process's sandboxes, and records for `logging`.

Neither contains text from a guest.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._exceptions import RequestError, SandboxUnavailable, SessionBusy, UndefinedVariable

if TYPE_CHECKING:
    from ._conversation import Conversation

DEBUG, INFO, WARNING = 10, 20, 30

_REFUSALS = (SandboxUnavailable, SessionBusy, RequestError)


@dataclass(frozen=True)
class Stats:
    """Current and cumulative counts of this process's sandboxes."""

    sessions: int
    """Number of open sessions and batches."""
    running: int
    """Number of running cells and tasks."""
    waiting: int
    """Number of sessions that wait for a sandbox, and of tasks that wait for others to end."""
    refused: Mapping[str, int]
    """Number of requests that got no sandbox or were refused for another reason, by exception name."""
    ended: Mapping[str, int]
    """Number of ended cells and tasks, by status."""


class _Counts:
    """The counts since the start of this process, and its conversations by number."""

    def __init__(self) -> None:
        # Reentrant, because a signal handler may run a cell in the thread that counts one.
        self.lock = threading.RLock()
        self.refused: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.conversations: weakref.WeakValueDictionary[int, Conversation] = weakref.WeakValueDictionary()
        self.numbers = itertools.count(1)

    def add(self, counts: dict[str, int], name: str) -> None:
        with self.lock:
            counts[name] = counts.get(name, 0) + 1


_counts = _Counts()
# The logger; `None` until the process imports `logging`.
_logger: Any = None


def _forget_in_child() -> None:
    """Resets the counts in a forked child, which does not own its parent's sandboxes. The lock is replaced
    too: a thread of the parent may have held it."""
    global _counts
    _counts = _Counts()


os.register_at_fork(after_in_child=_forget_in_child)


def stats() -> Stats:
    """Returns the counts of this process's sandboxes. They are reset in a forked process."""
    found = [reference() for reference in _counts.conversations.valuerefs()]
    loads = [conversation.load for conversation in found if conversation is not None]
    sessions, running, waiting = (sum(column) for column in zip((0, 0, 0), *loads))
    with _counts.lock:
        return Stats(sessions, running, waiting, dict(_counts.refused), dict(_counts.ended))


def enter(conversation: Conversation) -> int:
    """Registers a conversation for as long as it exists. Returns its number in this process."""
    number = next(_counts.numbers)
    _counts.conversations[number] = conversation
    return number


def refused(conversation: Conversation, error: BaseException) -> None:
    """Counts and logs an exception, if it is a refusal."""
    if isinstance(error, _REFUSALS) and not isinstance(error, UndefinedVariable):
        name = type(error).__name__
        _counts.add(_counts.refused, name)
        report(conversation, WARNING, "refused", f"was refused: {name}", error=name)


def cell_ended(
    conversation: Conversation, outcome: Mapping[str, Any], what: str, number: object, **fields: Any
) -> None:
    """Counts and logs the end of a cell or a task."""
    status = str(outcome["status"])
    _counts.add(_counts.ended, status)
    hit = outcome.get("limit")
    if hit is not None:
        key = str(hit.get("name"))
        message = f"{what} {number} reached its limit {key}"
        report(conversation, WARNING, "limit", message, status=status, limit=key, **fields)
    elif _is_reported(DEBUG):
        message = f"{what} {number} ended: {status}"
        report(conversation, DEBUG, "cell-ended", message, status=status, **fields)


def _is_reported(level: int) -> bool:
    """Whether the process uses `logging`, and records of this level are enabled."""
    global _logger
    if _logger is None:
        logging = sys.modules.get("logging")
        # A module that was not imported has no handlers, and importing it takes longer than importing this
        # package.
        if logging is None:
            return False
        _logger = logging.getLogger("sandfork")
    enabled: bool = _logger.isEnabledFor(level)
    return enabled


def report(conversation: Conversation, level: int, event: str, message: str, **fields: Any) -> None:
    """Writes a log record, if the process uses `logging`. Exceptions of handlers are ignored."""
    with contextlib.suppress(Exception):
        if not _is_reported(level):
            return
        logger = _logger
        if not logger.handlers:
            # Without any handler, `logging` would write warnings to stderr.
            logger.addHandler(sys.modules["logging"].NullHandler())
        info = conversation.info
        policy = None if info is None else info.policy.name
        extra = {"event": event, "session": conversation.number, "policy": policy, **fields}
        under = "" if policy is None else f" under policy {policy!r}"
        logger.log(level, "%s %d%s %s", conversation.noun, conversation.number, under, message, extra=extra)

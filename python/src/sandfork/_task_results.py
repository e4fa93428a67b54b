"""What `map` gives for each task, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._exceptions import SandforkError
from ._execution import Execution

INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True)
class TaskResult:
    """What one task came to: an `execution`, or the `failure` for which no sandbox could be had."""

    id: Any
    """The task's own, or its number in the iterable."""
    index: int
    """Its number in the iterable, from 0."""
    attempts: int
    """How often it was tried: more than once only where it got no sandbox before."""
    execution: Execution | None
    """How it ended; `None` where it got no sandbox, however often that was tried."""
    failure: SandforkError | None
    """Why it got none: it was not run, and nothing is known of it."""

    @property
    def status(self) -> str:
        """That of the execution, or `infrastructure`."""
        return INFRASTRUCTURE if self.execution is None else self.execution.status

    @property
    def ok(self) -> bool:
        """Whether it ran to its end, or exited with 0."""
        return self.execution is not None and self.execution.ok

    @property
    def value(self) -> Any:
        """Value of the program's last expression, where that is a number or a text of at most 32,768
        characters; otherwise an `Opaque`: have it printed. `None` too where there is none."""
        return None if self.execution is None else self.execution.value

    @property
    def stdout(self) -> str:
        """What it wrote."""
        return "" if self.execution is None else "".join(self.execution.logs.stdout)

    @property
    def stderr(self) -> str:
        """What it wrote beside that."""
        return "" if self.execution is None else "".join(self.execution.logs.stderr)

    def __repr__(self) -> str:
        what = self.failure if self.execution is None else self.execution
        return f"<TaskResult {self.id!r} {self.status}: {what!r}>"


@dataclass(frozen=True)
class Progress:
    """How far a batch is."""

    done: int
    """Tasks with a result."""
    failed: int
    """Those of them that are not `ok`, and were run."""
    lost: int
    """Those of them that got no sandbox."""
    total: int | None
    """How many tasks there are, where `len()` knows."""
    elapsed: float
    """Seconds since the first result was asked for."""

    @property
    def rate(self) -> float:
        """Results a second."""
        return self.done / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def remaining(self) -> float | None:
        """Seconds until the last result, if it goes on like this; `None` where that is not known."""
        if self.total is None or not self.done:
            return None
        return max(0, self.total - self.done) / self.rate if self.rate else None

"""The results and the progress of `map`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._exceptions import SandforkError
from ._execution import Execution

INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True)
class TaskResult:
    """The result of one task: an `execution`, or the `failure` for which no sandbox was available."""

    id: Any
    """The task's `id`, or its number in the iterable."""
    index: int
    """The task's number in the iterable, from 0."""
    attempts: int
    """The number of attempts. A task is retried only if it got no sandbox."""
    execution: Execution | None
    """How the task ended; `None` if no attempt got a sandbox."""
    failure: SandforkError | None
    """The reason why the task got no sandbox and has no execution; `None` if it has one."""

    @property
    def status(self) -> str:
        """The status of the execution, or `infrastructure`."""
        return INFRASTRUCTURE if self.execution is None else self.execution.status

    @property
    def ok(self) -> bool:
        """Whether the task completed, or exited with 0."""
        return self.execution is not None and self.execution.ok

    @property
    def value(self) -> Any:
        """The value of the program's last expression, if it is a number or text of at most 32,768 characters;
        `None` if there is none. Any other value is an `Opaque`: print it instead."""
        return None if self.execution is None else self.execution.value

    @property
    def stdout(self) -> str:
        """The task's standard output."""
        return "" if self.execution is None else "".join(self.execution.logs.stdout)

    @property
    def stderr(self) -> str:
        """The task's standard error."""
        return "" if self.execution is None else "".join(self.execution.logs.stderr)

    def __repr__(self) -> str:
        what = self.failure if self.execution is None else self.execution
        return f"<TaskResult {self.id!r} {self.status}: {what!r}>"


@dataclass(frozen=True)
class Progress:
    """The progress of a batch."""

    done: int
    """The number of tasks with a result."""
    failed: int
    """The number of tasks that ran and are not `ok`."""
    lost: int
    """The number of tasks that got no sandbox."""
    total: int | None
    """The number of tasks, or `None` if the iterable has no `len()`."""
    elapsed: float
    """Seconds since the first result was requested."""

    @property
    def rate(self) -> float:
        """Results per second."""
        return self.done / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def remaining(self) -> float | None:
        """Estimated seconds until the last result, at the current rate; `None` if unknown."""
        if self.total is None or not self.done:
            return None
        return max(0, self.total - self.done) / self.rate if self.rate else None

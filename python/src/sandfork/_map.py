"""The blocking interface of a batch."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sized
from types import TracebackType

from ._batch import Batch, BatchOpening, OnProgress, Source
from ._exceptions import RequestError, SessionBusy, SessionClosed, SessionForked
from ._options import PolicyLike, policy_choice
from ._sync_driver import SyncDriver
from ._task_results import TaskResult
from ._tasks import TaskLike, checked_tasks
from ._tools import check_seconds

# The maximum number of live workers of a zygote.
_MOST_JOBS = 4096


class Mapped:
    """The results of a batch, produced on demand. `map` returns it.

    It is an iterator, and a context manager that closes it. The batch starts when the first result is
    requested.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._driver = SyncDriver(batch)
        weakref.finalize(self, self._driver.resources.release)

    def close(self) -> None:
        """Ends the batch and its running tasks. May be called again, and from any thread."""
        self._driver.close()

    def __iter__(self) -> Mapped:
        return self

    def __next__(self) -> TaskResult:
        if self._driver.closed:
            raise StopIteration
        try:
            result = self._driver.perform(self._batch.next())
        except (SessionBusy, SessionForked):
            # Another thread or process uses the batch, which continues.
            raise
        except SessionClosed:
            # Another thread closed the batch meanwhile.
            raise StopIteration from None
        except BaseException:
            self.close()
            raise
        if result is None:
            self.close()
            raise StopIteration
        return result

    def __enter__(self) -> Mapped:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Mapped {'closed' if self._driver.closed else 'open'}>"


def map(
    tasks: Iterable[TaskLike],
    *,
    policy: PolicyLike = "standard",
    timeout: float | None = None,
    jobs: int | None = None,
    ordered: bool = False,
    on_progress: OnProgress | None = None,
) -> Mapped:
    """Runs many tasks in parallel, each in a fresh sandbox, and yields a `TaskResult` for each.

        for result in sandfork.map(["6 * 7", "1 / 0"]):
            print(result.id, result.status, result.value)

    A task is code, a `Task`, or a dict with the keys of one. Tasks are taken lazily, in the thread that
    requests results, and at most four for each job ahead of the yielded results. The iterable may therefore
    have millions of tasks.

    - `timeout`: wall-clock seconds for each task, instead of the policy's `limits.wall`.
    - `jobs`: number of tasks that run at once, from 1 to 4096. The default is the number of processors. The
      host's resources may reduce it.
    - `ordered`: yields results in the order of the tasks, instead of the order in which they finish.
    - `on_progress`: called with a `Progress` for each result, before the result is yielded.

    A program runs once, and everything that it does is reported in its result. If no sandbox is available,
    the task is retried up to three times; then its result has the `status` `infrastructure`. An invalid
    task, or an exception of the iterable, is raised after the results of all tasks before it. So is
    `SandboxUnavailable`, when 16 tasks in a row got no sandbox.

    The batch and its running tasks end when the returned object is closed or garbage-collected.
    """
    checked = checked_tasks(tasks)
    opening = batch_opening(policy, timeout, jobs, ordered)
    return Mapped(Batch(opening, Source(checked), known_length(tasks), on_progress))


def batch_opening(policy: PolicyLike, timeout: float | None, jobs: int | None, ordered: bool) -> BatchOpening:
    """The arguments of `map` and `async_map`, checked."""
    if jobs is not None and (type(jobs) is not int or not 1 <= jobs <= _MOST_JOBS):
        raise RequestError(f"jobs is {jobs!r}: give a number from 1 to {_MOST_JOBS}, or None")
    # The caller's input takes precedence over the policy's `stdio.stdin`.
    overrides = ["stdio.stdin=pass"]
    wall = check_seconds(timeout, "timeout")
    if wall is not None:
        overrides.append(f"limits.wall={max(1, round(wall * 1000))}ms")
    return BatchOpening(policy_choice(policy), tuple(overrides), jobs, "given" if ordered else "finished")


def known_length(tasks: object) -> int | None:
    """The number of tasks, or `None` if it is unknown."""
    return len(tasks) if isinstance(tasks, Sized) else None

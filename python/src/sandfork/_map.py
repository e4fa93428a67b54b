"""The blocking face of a batch."""

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

# What one zygote can have alive at once.
_MOST_JOBS = 4096


class Mapped:
    """The results of a batch, as they are asked for: what `map` returns.

    It is an iterator, and a context manager that closes it. Nothing is begun before the first result is
    asked for.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._driver = SyncDriver(batch)
        weakref.finalize(self, self._driver.resources.release)

    def close(self) -> None:
        """From any thread: ends the batch, and what runs of it. May be called again."""
        self._driver.close()

    def __iter__(self) -> Mapped:
        return self

    def __next__(self) -> TaskResult:
        if self._driver.closed:
            raise StopIteration
        try:
            result = self._driver.perform(self._batch.next())
        except (SessionBusy, SessionForked):
            # The batch is another's, and goes on.
            raise
        except SessionClosed:
            # By another thread, in the middle.
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
    """Runs many tasks, each in a fresh sandbox, several at a time; gives a `TaskResult` for each.

        for result in sandfork.map(["6 * 7", "1 / 0"]):
            print(result.id, result.status, result.value)

    A task is code, a `Task`, or a dict with the keys of one. They are taken as they are needed, in the
    thread that asks for results, at most four for each job ahead of the results that were given: there
    may be millions. Results come as tasks finish, or with `ordered` as the tasks were given.

    Whatever a program does is its result, and it is run once. Where no sandbox could be had, it is tried
    again up to three times; then that is the result (`status` is `infrastructure`). A task that is wrong,
    and an exception of the iterable, is raised when all before it have their results; so is
    `SandboxUnavailable`, when 16 tasks in a row got none.

    `timeout` is for each task, seconds on the clock, in place of the policy's `limits.wall`. `jobs` run at
    once: without it as many as there are processors, and never more than the host has room for.
    `on_progress` is called with a `Progress` for each result, before that is given.

    Closing what this returns, and leaving it to the garbage collector, ends the batch and what runs of it.
    """
    checked = checked_tasks(tasks)
    opening = batch_opening(policy, timeout, jobs, ordered)
    return Mapped(Batch(opening, Source(checked), known_length(tasks), on_progress))


def batch_opening(policy: PolicyLike, timeout: float | None, jobs: int | None, ordered: bool) -> BatchOpening:
    """The arguments of `map` and `async_map`, checked."""
    if jobs is not None and (type(jobs) is not int or not 1 <= jobs <= _MOST_JOBS):
        raise RequestError(f"jobs is {jobs!r}: give a number from 1 to {_MOST_JOBS}, or None")
    # What the caller passes is what the guest is to read, whatever the policy says of others.
    overrides = ["stdio.stdin=pass"]
    wall = check_seconds(timeout, "timeout")
    if wall is not None:
        overrides.append(f"limits.wall={max(1, round(wall * 1000))}ms")
    return BatchOpening(policy_choice(policy), tuple(overrides), jobs, "given" if ordered else "finished")


def known_length(tasks: object) -> int | None:
    """How many there are, where that is known."""
    return len(tasks) if isinstance(tasks, Sized) else None

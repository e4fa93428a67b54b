"""Batches: the common part of both interfaces, and the blocking interface."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Any

from ._batch import Batch, OnProgress, Source
from ._driver import Driver, SyncDriver, Work
from ._environment import Environment
from ._exceptions import RequestError, SessionBusy, SessionClosed, SessionForked
from ._options import PolicyLike, package_overrides, policy_choice
from ._tasks import TaskLike, TaskResult, checked_tasks
from ._tools import check_seconds

# The maximum number of live workers of a zygote.
MAX_JOBS = 4096
# The longest `limits.wall` that a policy allows, in seconds.
_LONGEST_TASK = 30 * 24 * 3600


class BaseMapped:
    """The part of `Mapped` and `AsyncMapped` that does not wait for the supervisor."""

    _driver: Driver[Batch]

    def _next(self) -> Work[TaskResult | None]:
        """Returns the next result, or `None` if there are no more. In the latter case, and after an
        exception, the batch ends."""
        driver = self._driver
        if driver.closed:
            return None
        try:
            result = yield from driver.conduct(driver.session.next())
        except (SessionBusy, SessionForked):
            # Another caller or process uses the batch, which continues.
            raise
        except SessionClosed:
            # Another caller closed the batch meanwhile.
            return None
        except BaseException:
            driver.close()
            raise
        if result is None:
            driver.close()
        return result

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'closed' if self._driver.closed else 'open'}>"


class Mapped(BaseMapped):
    """The results of a batch, produced on demand. `map` returns it.

    It is an iterator, and a context manager that closes it. The batch starts when the first result is
    requested.
    """

    def __init__(self, batch: Batch) -> None:
        self._driver = SyncDriver(batch, owner=self)

    def close(self) -> None:
        """Ends the batch and its running tasks. May be called again, and from any thread."""
        self._driver.close()

    def __iter__(self) -> Mapped:
        return self

    def __next__(self) -> TaskResult:
        result = SyncDriver.complete(self._next())
        if result is None:
            raise StopIteration
        return result

    def __enter__(self) -> Mapped:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def map(
    tasks: Iterable[TaskLike],
    *,
    policy: PolicyLike = "standard",
    packages: Sequence[str] | None = None,
    environment: str | Environment | None = None,
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

    - `packages`, `environment`: as for `Sandbox`.
    - `timeout`: wall-clock seconds for each task, instead of the policy's `limits.wall`.
    - `jobs`: number of tasks that run at once, from 1 to 4096. The default is the number of processors. The
      host's resources may reduce it.
    - `ordered`: yields results in the order of the tasks, instead of the order in which they finish.
    - `on_progress`: called with a `Progress` for each result, before the result is yielded.

    A program runs once, and everything that it does is reported in its result. If no sandbox is available,
    the task is retried up to three times; then its result has the `status` `infrastructure`. A task that
    no sandbox can execute has the `status` `refused`. An invalid task, or an exception of the iterable,
    is raised after the results of all tasks before it. So is `SandboxUnavailable` when 16 tasks in a row
    got no sandbox.

    The batch and its running tasks end when the returned object is closed or garbage-collected.
    """
    sets = package_overrides(packages, environment)
    return Mapped(batch_of(tasks, policy, sets, timeout, jobs, ordered, on_progress))


def batch_of(
    tasks: object,
    policy: PolicyLike,
    sets: list[str],
    timeout: float | None,
    jobs: int | None,
    ordered: bool,
    on_progress: OnProgress | None,
    source: Source | None = None,
) -> Batch:
    """Creates a batch from the arguments of `map`. `source` provides the tasks if they are not a plain
    iterable."""
    if jobs is not None and (type(jobs) is not int or not 1 <= jobs <= MAX_JOBS):
        raise RequestError(f"jobs is {jobs!r}: give a number from 1 to {MAX_JOBS}, or None")
    # The caller's input takes precedence over the policy's `stdio.stdin`.
    overrides = [*sets, "stdio.stdin=pass"]
    wall = check_seconds(timeout, "timeout")
    if wall is not None:
        if wall > _LONGEST_TASK:
            raise RequestError(f"timeout is {timeout}: a task has {_LONGEST_TASK} seconds at most")
        overrides.append(f"limits.wall={max(1, round(wall * 1000))}ms")
    order = "given" if ordered else "finished"
    opening: dict[str, Any] = {
        "kind": "map",
        "policy": policy_choice(policy),
        "set": overrides,
        "order": order,
    }
    if jobs is not None:
        opening["jobs"] = jobs
    total = len(tasks) if isinstance(tasks, Sized) else None
    return Batch(opening, source or Source(checked_tasks(tasks)), total, on_progress)

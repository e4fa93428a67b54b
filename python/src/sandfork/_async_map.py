"""The asyncio interface of a batch."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from types import TracebackType
from typing import Any

from ._async_driver import AsyncDriver
from ._batch import END, PENDING, Batch, OnProgress, Source
from ._exceptions import SessionBusy, SessionClosed, SessionForked
from ._map import batch_opening, known_length
from ._options import PolicyLike
from ._task_results import TaskResult
from ._tasks import TaskLike, checked_tasks


class _AsyncSource(Source):
    """Takes tasks from an async iterator, and waits for the next task and for results at the same time."""

    def __init__(self, tasks: AsyncIterator[Any]) -> None:
        super().__init__(iter(()))
        self._coming = tasks
        self.pending: asyncio.Future[Any] | None = None

    def take(self) -> Any:
        if self.pending is None:
            self.pending = asyncio.ensure_future(self._coming.__anext__())
        if not self.pending.done():
            return PENDING
        came, self.pending = self.pending, None
        try:
            return came.result()
        except StopAsyncIteration:
            return END

    async def cancel(self) -> None:
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)


class AsyncMapped:
    """The results of a batch, produced on demand. `async_map` returns it.

    It is an async iterator, and an async context manager that closes it. The batch starts when the first
    result is requested.
    """

    def __init__(self, batch: Batch, source: _AsyncSource | None) -> None:
        self._batch = batch
        self._source = source
        self._driver = AsyncDriver(batch)
        weakref.finalize(self, self._driver.resources.release)

    async def aclose(self) -> None:
        """Ends the batch and its running tasks. May be called again."""
        self._driver.close()
        if self._source is not None:
            await self._source.cancel()

    def __aiter__(self) -> AsyncMapped:
        return self

    async def __anext__(self) -> TaskResult:
        if self._driver.closed:
            raise StopAsyncIteration
        try:
            result = await self._driver.perform(self._batch.next())
        except (SessionBusy, SessionForked):
            # Another task or process uses the batch, which continues.
            raise
        except SessionClosed:
            # Another task closed the batch meanwhile.
            raise StopAsyncIteration from None
        except BaseException:
            await self.aclose()
            raise
        if result is None:
            await self.aclose()
            raise StopAsyncIteration
        return result

    async def __aenter__(self) -> AsyncMapped:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<AsyncMapped {'closed' if self._driver.closed else 'open'}>"


def async_map(
    tasks: Iterable[TaskLike] | AsyncIterable[TaskLike],
    *,
    policy: PolicyLike = "standard",
    timeout: float | None = None,
    jobs: int | None = None,
    ordered: bool = False,
    on_progress: OnProgress | None = None,
) -> AsyncMapped:
    """The asyncio version of `map`. `tasks` may also be an async iterable: the batch waits for its next task
    and for results at the same time. `on_progress` may be async.

        async for result in sandfork.async_map(tasks()):
            print(result.id, result.status)

    Cancelling the task that waits for a result ends the batch.
    """
    opening = batch_opening(policy, timeout, jobs, ordered)
    if isinstance(tasks, AsyncIterable):
        source = _AsyncSource(tasks.__aiter__())
        return AsyncMapped(Batch(opening, source, None, on_progress), source)
    batch = Batch(opening, Source(checked_tasks(tasks)), known_length(tasks), on_progress)
    return AsyncMapped(batch, None)

"""Takes the tasks of a batch from an async iterator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ._batch import END, PENDING, Source


class AsyncSource(Source):
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

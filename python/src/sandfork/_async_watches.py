"""The asyncio interface of directory watches."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

from ._watches import BaseFileWatch, FileEvent, OnEvent


class AsyncFileWatch(BaseFileWatch):
    """The async version of `FileWatch`. A callback may be async."""

    __slots__ = ()

    _driver: Any

    async def events(self, timeout: float | None = None) -> list[FileEvent]:
        """The async version of `FileWatch.events`."""
        events: list[FileEvent] = await self._driver.complete(self._received(timeout))
        return events

    async def close(self) -> None:
        """Ends the watch. May be called again."""
        self._driver.close()

    def _call(self, on_event: OnEvent) -> None:
        async def call() -> None:
            async for event in self:
                called = on_event(event)
                if inspect.isawaitable(called):
                    await called

        self._of_callback = asyncio.ensure_future(call())

    async def __aiter__(self) -> AsyncIterator[FileEvent]:
        while self.ended is None:
            for event in await self.events():
                yield event

    async def __aenter__(self) -> AsyncFileWatch:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

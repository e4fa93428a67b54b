"""The asyncio interface of a batch, against a scripted supervisor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

import sandfork

from .support.fake_batch import FakeBatch, Serve, all_ok, none_done


async def test_tasks_may_come_from_any_iterable(serve: Serve) -> None:
    async def coming() -> AsyncIterator[str]:
        for n in range(10):
            await asyncio.sleep(0)
            yield str(n)

    serve(all_ok, all_ok, all_ok)
    for tasks in (coming(), map(str, range(10)), [str(n) for n in range(10)]):
        assert [result.value async for result in sandfork.async_map(tasks)] == list(range(10))


async def test_results_arrive_while_waiting_for_the_next_task(serve: Serve) -> None:
    queue: asyncio.Queue[str | None] = asyncio.Queue()

    async def coming() -> AsyncIterator[str]:
        while True:
            task = await queue.get()
            if task is None:
                return
            yield task

    serve(all_ok)
    queue.put_nowait("first")
    seen = []
    async for result in sandfork.async_map(coming()):
        seen.append(result.id)
        # Each task depends on the previous result.
        queue.put_nowait(None if len(seen) == 5 else "next")
    assert seen == [0, 1, 2, 3, 4]


async def test_event_loop_is_not_blocked(serve: Serve) -> None:
    ticked = threading.Event()

    def waits(batch: FakeBatch) -> None:
        batch.begin()
        batch.task()
        told = batch.task()
        assert told is None
        batch.done(0, value=ticked.wait(60))
        batch.close()

    serve(waits)
    results = sandfork.async_map(["1"])

    async def tick() -> None:
        await asyncio.sleep(0)
        ticked.set()

    ticking = asyncio.ensure_future(tick())
    assert (await results.__anext__()).value is True
    await ticking
    with pytest.raises(StopAsyncIteration):
        await results.__anext__()


async def test_progress_may_be_async(serve: Serve) -> None:
    told: list[sandfork.Progress] = []

    async def progress(how_far: sandfork.Progress) -> None:
        await asyncio.sleep(0)
        told.append(how_far)

    serve(all_ok)
    results = [result async for result in sandfork.async_map(["1", "2"], on_progress=progress)]
    assert [(one.done, one.total) for one in told] == [(1, 2), (2, 2)]
    assert len(results) == 2


class Endless:
    """Yields one task, and then none for a long time."""

    def __init__(self) -> None:
        self.waits, self.cancelled = asyncio.Event(), asyncio.Event()

    async def tasks(self) -> AsyncIterator[str]:
        yield "1"
        try:
            self.waits.set()
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.mark.parametrize("end", ["aclose", "with", "cancel"])
async def test_abandoned_batch_is_ended(serve: Serve, end: str) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(batch: FakeBatch) -> None:
        batch.begin()
        batch.task()
        batch.done(0)
        while batch.wire.receive() is not None:
            pass
        loop.call_soon_threadsafe(ended.set)

    serve(script)
    endless = Endless()
    results = sandfork.async_map(endless.tasks())
    assert (await results.__anext__()).id == 0
    if end == "cancel":
        waiting = asyncio.ensure_future(results.__anext__())
        await endless.waits.wait()
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    elif end == "with":
        async with results:
            pass
    else:
        await results.aclose()
    await asyncio.wait_for(ended.wait(), 60)
    assert [result async for result in results] == []
    assert end != "cancel" or endless.cancelled.is_set()


async def test_closing_in_another_task_ends_the_wait(serve: Serve) -> None:
    serve(none_done)
    results = sandfork.async_map(["1"])
    asyncio.get_running_loop().call_later(0.1, lambda: asyncio.ensure_future(results.aclose()))
    assert [result async for result in results] == []


async def test_a_batch_has_one_caller_at_a_time(serve: Serve) -> None:
    serve(none_done)
    results = sandfork.async_map(["1"])
    waiting = asyncio.ensure_future(results.__anext__())
    await asyncio.sleep(0.05)
    with pytest.raises(sandfork.SessionBusy, match="the batch is running something"):
        await results.__anext__()
    await results.aclose()
    with pytest.raises(StopAsyncIteration):
        await waiting


async def test_tasks_whose_supervisor_died_are_sent_again(serve: Serve) -> None:
    def dies(batch: FakeBatch) -> None:
        batch.begin()
        batch.task()

    async def coming() -> AsyncIterator[str]:
        yield "1"
        await asyncio.sleep(0.1)
        yield "2"

    serve(dies, all_ok)
    assert [result.value async for result in sandfork.async_map(coming())] == [0, 1]

"""Tools that start or end after their caller has stopped waiting."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from sandfork import AsyncSandbox, Sandbox, Tool, _threads

from .support.fake import FakeSupervisor


def test_tool_is_not_called_if_its_thread_starts_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    begins, called = [], []

    class Late:
        def __init__(self, target, **options):
            begins.append(target)

        def start(self):
            pass

    monkeypatch.setattr(threading, "Thread", Late)
    future = _threads.start(lambda: called.append(1))
    assert future.cancel()
    begins[0]()
    assert called == []


class Late:
    """A tool that returns an awaitable after its timeout."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.given: queue.Queue[Coroutine[Any, Any, None]] = queue.Queue()
        self.tool = Tool("late", self.call, timeout=0.05)

    def call(self) -> Any:
        self.release.wait(60)
        awaitable = asyncio.sleep(0)
        self.given.put(awaitable)
        return awaitable

    def assert_closed(self) -> None:
        """Checks that the coroutine is closed soon: Python warns about one that is never awaited."""
        self.release.set()
        awaitable = self.given.get(timeout=60)
        deadline = time.monotonic() + 60
        while inspect.getcoroutinestate(awaitable) != inspect.CORO_CLOSED:
            assert time.monotonic() < deadline
            time.sleep(0.001)


def test_late_coroutine_is_closed(fake: FakeSupervisor) -> None:
    late = Late()
    with Sandbox(tools=[late.tool]) as sbx:
        error = sbx.run("late()").error
        assert error is not None
        assert error.name == "TimeoutError"
        late.assert_closed()


async def test_late_coroutine_is_closed_in_a_loop_too(fake: FakeSupervisor) -> None:
    late = Late()
    async with AsyncSandbox(tools=[late.tool]) as sbx:
        error = (await sbx.run("late()")).error
        assert error is not None
        assert error.name == "TimeoutError"
        late.assert_closed()


def test_calls_are_refused_while_many_abandoned_ones_run(fake: FakeSupervisor) -> None:
    release, called = threading.Event(), []

    def slow() -> None:
        called.append(threading.current_thread())
        release.wait(60)

    async def quick() -> int:
        return 1

    with Sandbox(tools=[slow, quick], tool_timeout=0.05) as sbx:

        def said(code: str) -> str:
            error = sbx.run(code).error
            return "" if error is None else error.value

        for _ in range(32):
            assert said("quick()") == ""
            assert "more than 0.05 s" in said("slow()")
            sbx.restart()
        for name in ("slow", "quick"):
            assert said(f"{name}()") == (
                f"{name} is not called while 32 calls that took too long still run on the host, of slow"
            )
        assert len(called) == 32
        release.set()
        for thread in called:
            thread.join(60)
        assert said("slow()") == ""

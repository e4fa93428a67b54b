"""The asyncio client decodes a guest's values while the caller's event loop continues."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import sandfork
from sandfork import AsyncSandbox, Sandbox, _calls, _values

from .support.fake import FakeSupervisor, ends_when_interrupted

# A message without buffers, and one with a buffer of a single byte.
LONG_HEADER = "['x' * 10] * 2000"
BUFFER = "b'x'"


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The threads in which this side has decoded values. The fake supervisor has threads of its own."""
    found: set[str] = set()
    decode = _values.Decoder.decode

    def recorded(self: _values.Decoder, tree: Any) -> Any:
        found.add(threading.current_thread().name)
        return decode(self, tree)

    monkeypatch.setattr(_values.Decoder, "decode", recorded)
    return found


class Held:
    """Holds up the decoding of arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.release = threading.Event()
        self.begun = asyncio.Event()
        self._tell = asyncio.get_running_loop().call_soon_threadsafe
        self._decode = _calls._arguments
        monkeypatch.setattr(_calls, "_arguments", self._arguments)

    def _arguments(self, *given: Any) -> Any:
        self._tell(self.begun.set)
        assert self.release.wait(60)
        return self._decode(*given)


async def test_large_arguments_are_decoded_in_a_thread(fake: FakeSupervisor, threads: set[str]) -> None:
    async def size(x: Any) -> int:
        return len(x)

    async with AsyncSandbox(tools=[size]) as sbx:
        for large in (LONG_HEADER, BUFFER, "list(range(1000))", "'x' * 40_000"):
            threads.clear()
            assert (await sbx.run(f"size({large})")).ok
            assert "sandfork-tool" in threads
            assert "MainThread" not in threads, large
        threads.clear()
        assert (await sbx.run("size('few')")).ok
        assert "MainThread" in threads
        assert "sandfork-tool" not in threads


async def test_displays_and_variables_are_decoded_in_a_thread(
    fake: FakeSupervisor, threads: set[str]
) -> None:
    def show(session, cell):
        session.display({"image/png": b"picture"})
        session.outcome(cell)

    fake.on("show", show)
    seen = []

    def on_result(result: Any) -> None:
        seen.append((result.raw("image/png"), threading.current_thread()))

    async with AsyncSandbox(variables={"a": [1]}) as sbx:
        await sbx.run("show", on_result=on_result)
        assert await sbx.get("a") == [1]
    assert seen == [(b"picture", threading.main_thread())]
    assert "MainThread" not in threads


def test_blocking_caller_decodes_in_its_own_thread(fake: FakeSupervisor, threads: set[str]) -> None:
    with Sandbox(tools={"size": len}) as sbx:
        assert sbx.run(f"[size({LONG_HEADER}), size({BUFFER})]").value == [2000, 1]
        assert sbx.get("size") is not None
    assert "MainThread" in threads
    assert "sandfork-tool" not in threads


async def test_undecodable_value_is_an_error_of_the_guest(fake: FakeSupervisor) -> None:
    def call(session, cell):
        tree = {"type": "bytes", "buffer": 7}
        header = {"kind": "call", "call": 1, "tool": "f", "args": [tree], "blob": {"lengths": [1]}}
        session.wire.send(header, b"x")
        session.outcome(cell, value=session.returns.get(timeout=60).header["error"]["name"])

    fake.on("call", call)
    called: list[Any] = []
    async with AsyncSandbox(tools={"f": called.append}) as sbx:
        assert (await sbx.run("call")).value == "ValueError"
    assert called == []


async def test_a_sandbox_that_is_closed_meanwhile_calls_no_tool(
    fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, called = Held(monkeypatch), []
    sbx = AsyncSandbox(tools={"f": called.append})
    running = asyncio.create_task(sbx.run(f"f({BUFFER})"))
    await asyncio.wait_for(held.begun.wait(), 60)
    await sbx.close()
    held.release.set()
    with pytest.raises(sandfork.SessionClosed):
        await running
    assert called == []


async def test_a_task_that_is_cancelled_meanwhile_calls_no_tool(
    fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(session, cell):
        header = {"kind": "call", "call": 1, "tool": "f", "args": [], "blob": {"lengths": [1]}}
        session.wire.send(header, b"x")
        ends_when_interrupted(session, cell)

    fake.on("call", call)
    held, called = Held(monkeypatch), []
    async with AsyncSandbox(tools={"f": called.append}) as sbx:
        running = asyncio.create_task(sbx.run("call"))
        await asyncio.wait_for(held.begun.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        held.release.set()
        assert (await sbx.run("1")).value == 1
    assert called == []


async def test_other_tasks_run_between_buffered_messages(fake: FakeSupervisor) -> None:
    sent = threading.Event()

    def flood(session, cell):
        session.wire.send({"kind": "call", "call": 1, "tool": "block", "args": []})
        for _ in range(6):
            session.output("x" * 16384)
        session.outcome(cell)
        sent.set()

    async def block() -> None:
        assert sent.wait(60)

    async def count() -> None:
        while True:
            counts.add(len(pieces))
            await asyncio.sleep(0)

    fake.on("flood", flood)
    pieces: list[str] = []
    counts: set[int] = set()
    async with AsyncSandbox(tools=[block]) as sbx:
        counting = asyncio.create_task(count())
        assert (await sbx.run("flood", on_stdout=pieces.append)).ok
        counting.cancel()
    assert counts & set(range(1, 6)), counts

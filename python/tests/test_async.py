"""The asyncio versions of the interfaces."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import os
import socket
import threading
from typing import Any

import pytest

import sandfork
from sandfork import AsyncSandbox, RequestError, Tool, _supervisor

from .support.descriptors import assert_closed_since, opened
from .support.fake import FakeSupervisor, ends_when_interrupted
from .support.races import interrupt_behind_cells


async def test_a_session_keeps_variables(fake: FakeSupervisor) -> None:
    async with AsyncSandbox(variables={"a": 1}) as sbx:
        await sbx.run("x = a + 1")
        execution = await sbx.run("x + 1")
        assert (execution.value, execution.text) == (3, "3")
        await sbx.set(y=5)
        await sbx.set_variables({"z": 6})
        assert (await sbx.get("y"), await sbx.get("z")) == (5, 6)
        assert sbx.info.enforced.level == "full"
        await sbx.add_tools({"f": lambda: 7})
        await sbx.restart()
        assert (await sbx.run("f() + a")).value == 8
    assert repr(sbx).startswith("<AsyncSandbox closed")
    with pytest.raises(sandfork.SessionClosed):
        await sbx.run("1")


async def test_it_is_opened_by_its_first_call(fake: FakeSupervisor) -> None:
    sbx = AsyncSandbox()
    with pytest.raises(sandfork.RequestError, match="not open yet"):
        _ = sbx.info
    assert fake.sessions == []
    assert (await sbx.run("1")).value == 1
    assert (await sbx.run("2")).value == 2
    assert len(fake.sessions) == 1
    await sbx.close()


def test_it_can_be_used_from_successive_loops(fake: FakeSupervisor) -> None:
    sbx = AsyncSandbox()
    for number in range(3):
        assert asyncio.run(sbx.run(f"{number}")).value == number
    asyncio.run(sbx.close())


def test_missing_asyncio_loop_names_the_remedy(fake: FakeSupervisor) -> None:
    sbx = AsyncSandbox()
    results = sandfork.async_map(["1"])
    for call in (sbx.run("1"), sbx.__aenter__(), sandfork.async_run("1"), results.__anext__()):
        with pytest.raises(
            RequestError, match=r"a running event loop of asyncio: under trio, .*to_thread\.run_sync"
        ):
            call.send(None)


async def test_a_file_of_the_host_is_run(fake: FakeSupervisor, tmp_path) -> None:
    program = tmp_path / "agent.py"
    program.write_text("x = 3\n")
    async with AsyncSandbox() as sbx:
        assert (await sbx.run_file(program, argv=["a"])).ok
        assert await sbx.get("x") == 3


async def test_a_run_is_a_session_of_one_cell(fake: FakeSupervisor) -> None:
    execution = await sandfork.async_run("stdin + '!'", stdin=b"hello")
    assert execution.value == "hello!"


async def test_many_sessions_run_at_once(fake: FakeSupervisor) -> None:
    together = threading.Barrier(20, timeout=60)

    def meet(session, cell):
        together.wait()
        session.outcome(cell, value=session.globals["n"])

    fake.on("meet", meet)

    async def one(number: int) -> Any:
        async with AsyncSandbox(variables={"n": number}) as sbx:
            return (await sbx.run("meet")).value

    assert await asyncio.gather(*map(one, range(20))) == list(range(20))


async def test_a_second_task_is_refused_at_once(fake: FakeSupervisor) -> None:
    refused = threading.Event()
    fake.on("slow", lambda session, cell: session.outcome(cell, value=refused.wait(60)))
    async with AsyncSandbox() as sbx:
        first = asyncio.create_task(sbx.run("slow"))
        await asyncio.sleep(0)
        with pytest.raises(sandfork.SessionBusy):
            await sbx.run("1")
        refused.set()
        assert (await first).value is True


async def test_async_tools_are_awaited_in_the_task(fake: FakeSupervisor) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    seen = []

    async def fetch(x: int) -> int:
        seen.append((asyncio.current_task(), variable.get()))
        await asyncio.sleep(0)
        return x + 1

    async with AsyncSandbox(tools={"fetch": fetch}) as sbx:
        assert (await sbx.run("fetch(1)")).value == 2
    assert seen == [(asyncio.current_task(), "set")]


async def test_other_tools_run_in_a_thread(fake: FakeSupervisor) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    called, ticked = asyncio.Event(), threading.Event()
    tells = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, called.set)

    def slow(x: int) -> list[Any]:
        tells()
        in_main = threading.current_thread() is threading.main_thread()
        return [x, variable.get(), in_main, ticked.wait(60)]

    async def tick() -> None:
        await called.wait()
        ticked.set()

    def stop() -> None:
        raise StopIteration

    async with AsyncSandbox(tools={"slow": slow, "stop": stop}) as sbx:
        ticking = asyncio.create_task(tick())
        assert (await sbx.run("slow(1)")).value == [1, "set", False, True]
        await ticking
        error = (await sbx.run("stop()")).error
        assert error is not None
        assert error.name == "RuntimeError"


async def test_tools_have_timeouts(fake: FakeSupervisor) -> None:
    cancelled, release = [], threading.Event()

    async def hang() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def late() -> None:
        raise TimeoutError("of its own")

    tools = {"hang": hang, "block": lambda: release.wait(60), "late": Tool("late", late, timeout=60)}
    async with AsyncSandbox(tools=tools, tool_timeout=0.05) as sbx:
        for name in ("hang", "block"):
            error = (await sbx.run(f"{name}()")).error
            assert error is not None
            assert (error.name, error.value) == ("TimeoutError", "the host's function took more than 0.05 s")
        error = (await sbx.run("late()")).error
        assert error is not None
        assert error.value == "of its own"
    release.set()
    assert cancelled == [1]


async def test_approval_and_callbacks_may_be_async(fake: FakeSupervisor) -> None:
    def show(session, cell):
        session.output("one")
        session.display({"text/plain": "two"})
        session.output("three", stream="stderr")
        session.outcome(cell)

    fake.on("show", show)
    seen = []

    async def tell(what: Any) -> None:
        await asyncio.sleep(0)
        seen.append(what if isinstance(what, str) else what.text)

    async def approve(name: str, args: Any, kwargs: Any) -> str:
        return "no"

    async with AsyncSandbox(tools={"f": print}, approve=approve, on_stdout=tell, on_stderr=tell) as sbx:
        await sbx.run("show", on_result=tell)
        error = (await sbx.run("f()")).error
        assert error is not None
        assert error.value == "the call of f was denied: no"
    assert seen == ["one", "two", "three"]


async def test_cancelling_a_task_interrupts_its_cell(fake: FakeSupervisor) -> None:
    fake.on("loop", ends_when_interrupted)
    async with AsyncSandbox() as sbx:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sbx.run("loop"), 0.05)
        assert (await sbx.run("1")).value == 1


async def test_a_second_cancellation_does_not_end_the_session(fake: FakeSupervisor) -> None:
    def late(session, cell):
        assert session.interrupted.wait(60)
        cancelled.wait(60)
        session.outcome(cell, status="interrupted")

    cancelled = threading.Event()
    fake.on("loop", late)
    async with AsyncSandbox() as sbx:
        task = asyncio.create_task(sbx.run("loop"))
        for _ in range(5):
            await asyncio.sleep(0.01)
            task.cancel()
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await sbx.run("1")).value == 1


async def test_a_cell_that_does_not_end_when_cancelled_is_ended(
    fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandfork._conversation._GRACE", 0.1)
    fake.on("loop", lambda session, cell: None)
    async with AsyncSandbox() as sbx:
        task = asyncio.create_task(sbx.run("loop"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(sandfork.SessionEnded, match="its caller left it in the middle"):
            await sbx.run("1")
        await sbx.restart()
        assert (await sbx.run("1")).value == 1


async def test_tool_is_cancelled_with_its_task(fake: FakeSupervisor) -> None:
    def call(session, cell):
        session.wire.send({"kind": "call", "id": 1, "call": 1, "tool": "hang", "args": []})
        ends_when_interrupted(session, cell)

    fake.on("call", call)
    async with AsyncSandbox(tools={"hang": lambda: asyncio.sleep(600)}) as sbx:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sbx.run("call"), 0.05)
        assert (await sbx.run("1")).value == 1


async def test_it_is_interrupted_and_closed_by_another_task(fake: FakeSupervisor) -> None:
    begun = asyncio.Event()
    begins = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, begun.set)

    def loop(session, cell):
        begins()
        ends_when_interrupted(session, cell)

    fake.on("loop", loop)
    fake.on("forever", lambda session, cell: begins())
    sbx = AsyncSandbox()
    running = asyncio.create_task(sbx.run("loop"))
    await asyncio.wait_for(begun.wait(), 60)
    sbx.interrupt()
    assert (await running).status == "interrupted"
    begun.clear()
    running = asyncio.create_task(sbx.run("forever"))
    await asyncio.wait_for(begun.wait(), 60)
    await sbx.close()
    with pytest.raises(sandfork.SessionClosed):
        await running


async def test_interrupt_right_after_the_cell_is_not_lost(
    fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.on("loop", ends_when_interrupted)
    async with AsyncSandbox() as sbx:
        interrupt_behind_cells(monkeypatch, sbx.interrupt)
        assert (await sbx.run("loop")).status == "interrupted"


async def test_long_request_and_long_reply_do_not_deadlock(fake: FakeSupervisor) -> None:
    def flood(session, cell):
        session.wire.send({"kind": "call", "id": 1, "call": 1, "tool": "much", "args": []})
        for _ in range(64):
            session.output("x" * 65536)
        session.outcome(cell, value=len(session.returns.get(timeout=60).header["value"]))

    fake.on("flood", flood)

    async def much() -> list[str]:
        await asyncio.sleep(0.1)
        return ["y" * 30_000] * 6

    async with AsyncSandbox(tools=[much]) as sbx:
        assert (await sbx.run("flood")).value == 6


async def test_the_end_of_the_supervisor_is_one_exception(fake: FakeSupervisor) -> None:
    fake.on("die", lambda session, cell: session.wire.socket.shutdown(2))
    async with AsyncSandbox() as sbx:
        with pytest.raises(sandfork.SupervisorDied):
            await sbx.run("die")
        with pytest.raises(sandfork.SessionEnded, match="its supervisor died"):
            await sbx.run("1")
    async with AsyncSandbox(on_death="restart") as sbx:
        with pytest.raises(sandfork.SupervisorDied):
            await sbx.run("die")
        assert (await sbx.run("1")).restarted


async def test_garbage_leaves_nothing_open(fake: FakeSupervisor) -> None:
    before = opened()
    around: list[AsyncSandbox] = []
    sbx = AsyncSandbox(tools={"own": around.copy})
    around.append(sbx)
    await sbx.run("1")
    del sbx, around
    gc.collect()
    fake.close()
    assert_closed_since(before)


async def test_reused_descriptor_replaces_a_stale_reader(
    fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler's exception may come right before a connection is taken out of the loop."""
    first = AsyncSandbox()
    await first.run("1")
    link = first._driver.resources.link
    assert link is not None
    number = link.fileno()
    asyncio.get_running_loop().add_reader(number, lambda: None)
    await first.close()
    connect = _supervisor.connect

    def connect_as_number() -> _supervisor.Connection:
        # The supervisor is a thread of this process, and its end of the connection must not get this number.
        anything = os.open(os.devnull, os.O_RDONLY)
        if anything != number:
            os.dup2(anything, number, inheritable=False)
            os.close(anything)
        connection = connect()
        with connection.socket as other:
            os.dup2(other.fileno(), number, inheritable=False)
        connection.socket = socket.socket(fileno=number)
        return connection

    monkeypatch.setattr(_supervisor, "connect", connect_as_number)
    async with AsyncSandbox() as sbx:
        execution = await asyncio.wait_for(sbx.run("6 * 7"), 60)
    assert execution.value == 42

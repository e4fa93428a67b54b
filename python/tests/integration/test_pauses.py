"""Sessions that are paused while they are idle."""

from __future__ import annotations

import asyncio

from sandfork import AsyncSandbox, Sandbox, SessionInfo

from ..support.waiting import eventually

POLICY = {"session": {"pause_after": "50ms"}}


def await_pause(sandbox: Sandbox | AsyncSandbox) -> SessionInfo:
    eventually(lambda: sandbox.info.paused, "it is not paused")
    return sandbox.info


def test_idle_sandbox_is_paused_and_resumes() -> None:
    seen = []
    with Sandbox(POLICY, tools={"note": seen.append}) as sbx:
        sbx.run("import random; random.seed(1); random.random(); x = []; open('f', 'w').write('kept')")
        assert sbx.info.forked_from is None
        info = await_pause(sbx)
        assert (info.cells, info.session) == (1, sbx.info.session)
        assert sbx.files.read_text("f") == "kept"
        await_pause(sbx)
        result = sbx.run("note(1); print('out'); x.append(random.random()); x")
        assert (result.value, result.logs.stdout, result.execution_count) == (
            [0.8474337369372327],
            ["out\n"],
            2,
        )
        assert seen == [1]
        await_pause(sbx)
        assert sbx.commands.run(["cat", "f"]).stdout == "kept"
        with sbx.snapshot() as snapshot, snapshot.fork() as fork:
            assert fork.info.forked_from == sbx.info.session
            await_pause(fork)
            assert fork.run("len(x)").value == 1
        await_pause(sbx)
        assert sbx.live


def test_an_async_sandbox_is_paused_too() -> None:
    async def use() -> None:
        async with AsyncSandbox(POLICY) as sbx:
            await sbx.run("x = 1")
            await_pause(sbx)
            assert (await sbx.run("x")).value == 1
            async with await sbx.fork() as fork:
                assert fork.info.forked_from == sbx.info.session
                await_pause(fork)

    asyncio.run(use())


def test_paused_sandbox_ends_at_its_time_limits() -> None:
    policy = {"session": {"pause_after": "50ms", "idle": "4s"}}
    with Sandbox(policy, on_death="restart") as sbx:
        sbx.run("x = 1")
        await_pause(sbx)
        eventually(lambda: not sbx.info.paused, "it has not ended")
        assert sbx.run("'x' in globals()").value is False

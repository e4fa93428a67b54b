"""Snapshots of live sessions."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pathlib
import threading
import time
from typing import Callable

import pytest

import sandfork
from sandfork import AsyncSandbox, AsyncSnapshot, RequestError, Sandbox, SessionEnded, UndefinedVariable


def test_forks_are_independent(sbx: Sandbox) -> None:
    sbx.run("xs = [1]; open('f', 'w').write('kept')")
    with sbx.snapshot() as snapshot:
        assert snapshot.size > 1 << 20
        forks = snapshot.fork(3)
        for number, fork in enumerate(forks):
            assert fork.run(f"xs.append({number}); [xs, open('f').read()]").value == [[1, number], "kept"]
            assert fork.info.enforced == sbx.info.enforced
            assert fork.info.session != sbx.info.session
            fork.files.write("f", "changed")
    assert sbx.run("xs").value == [1]
    assert sbx.files.read_text("f") == "kept"
    # The forks live on without the snapshot and without the sandbox it was taken of.
    sbx.close()
    assert [fork.run("len(xs)").value for fork in forks] == [2, 2, 2]
    for fork in forks:
        fork.close()


def test_a_fork_outlives_its_snapshot_and_its_sandbox() -> None:
    with Sandbox() as sbx:
        sbx.run("x = 5")
        fork = sbx.fork()
        snapshot = sbx.snapshot()
    with fork, snapshot, snapshot.fork() as another:
        assert [fork.run("x").value, another.run("x").value] == [5, 5]


def test_passed_arrays_are_copied_with_the_session(packages: sandfork.Policy) -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(200_000)
    with Sandbox(packages, variables={"a": array}, tools={"same": lambda x: x}) as sbx:
        sbx.run("a[0] = 7; b = same(a)[1:]")
        seen = "int(a[0]), int(a.sum()), int(b[-1])"
        wanted = (7, 7 + int(array.sum()), 199_999)
        with sbx.snapshot() as snapshot:
            sbx.run("a[:] = 0; b = None")
            with snapshot.fork() as fork, fork.snapshot() as second, second.fork() as another:
                fork.pause()
                assert (fork.run(seen).value, another.run(seen).value) == (wanted, wanted)
                # The deletion of an array closes no other file.
                another.run("del a, b; f = open('f', 'w+'); import gc; gc.collect()")
                assert another.run("f.write('x'), f.seek(0), f.read()").value == (1, 0, "x")
            sbx.rollback(snapshot)
        assert sbx.run(seen).value == wanted


def test_closed_snapshot_cannot_be_used(sbx: Sandbox) -> None:
    snapshot = sbx.snapshot()
    snapshot.close()
    snapshot.close()
    assert snapshot.closed
    for act in (snapshot.fork, lambda: snapshot.fork(2), lambda: sbx.rollback(snapshot)):
        with pytest.raises(RequestError, match="the snapshot is closed: take another"):
            act()
    for wrong in (0, -1, True, "2"):
        with sbx.snapshot() as open_one, pytest.raises(RequestError, match="give the number of forks"):
            open_one.fork(wrong)  # type: ignore[call-overload]


def test_unreferenced_snapshot_frees_its_memory() -> None:
    with Sandbox({"session": {"snapshots": 2}}) as sbx:
        for _ in range(5):
            sbx.snapshot().close()
        sbx.snapshot()
        gc.collect()
        for _ in range(1200):
            with contextlib.suppress(RequestError):
                # The supervisor learns of a garbage-collected snapshot with a delay.
                both = sbx.snapshot(), sbx.snapshot()
                break
            time.sleep(0.05)
        for snapshot in both:
            snapshot.close()
        kept = [sbx.snapshot(), sbx.snapshot()]
        with pytest.raises(RequestError, match=r"limit of 2 snapshots at once \(`session.snapshots`\)"):
            sbx.snapshot()
        kept[0].close()
        sbx.snapshot().close()


def test_cell_names_continue_in_a_fork(sbx: Sandbox) -> None:
    sbx.run("def f():\n    return 1 / 0")
    with sbx.fork() as fork:
        fork.run("x = 1")
        error = fork.run("f()").error
    assert error is not None
    assert 'File "<cell 1>", line 2, in f\n    return 1 / 0' in error.traceback
    assert 'File "<cell 3>"' in error.traceback


def test_a_fork_calls_the_tools_of_its_sandbox_or_its_own() -> None:
    with Sandbox(tools={"who": lambda: "first"}) as sbx, sbx.snapshot() as snapshot:
        with snapshot.fork() as fork:
            assert fork.run("who()").value == "first"
        with snapshot.fork(tools={"who": lambda: "second", "more": lambda: 3}) as fork:
            assert fork.run("[who(), more()]").value == ["second", 3]
        sbx.add_tools({"late": lambda: "added"})
        sbx.rollback(snapshot)
        assert sbx.run("[who(), late()]").value == ["first", "added"]


def test_rollback_undoes_later_changes(sbx: Sandbox) -> None:
    sbx.run("x = 1")
    with sbx.snapshot() as snapshot:
        for code in ("x = 2", "del x", "import os; os.abort()", "x = bytearray(1 << 40)"):
            sbx.run(code)
            sbx.rollback(snapshot)
            assert sbx.run("x").value == 1
    assert sbx.info.cells == 9


def test_transaction_is_atomic(sbx: Sandbox) -> None:
    sbx.run("x = 1")
    with sbx.transaction():
        sbx.run("x = 2")
        # An undefined variable is not a failed cell, so nothing is rolled back.
        with pytest.raises(UndefinedVariable):
            sbx.get("missing")
    assert sbx.run("x").value == 2
    with sbx.transaction():
        sbx.run("x = 3")
        assert sbx.run("1 / 0").status == "exception"
        sbx.run("x = 4")
    assert sbx.run("x").value == 2

    def fail() -> None:
        with sbx.transaction():
            sbx.run("x = 5")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert sbx.run("x").value == 2
    with sbx.transaction():
        assert sbx.run("import os; os._exit(1)").session == "ended"
    assert sbx.run("x").value == 2


def test_uncopyable_state_is_named_and_keeps_the_session(sbx: Sandbox) -> None:
    sbx.run("import os; r, w = os.pipe()")
    with pytest.raises(RequestError, match=r"^cannot snapshot: descriptor \d+ is a pipe; close it first$"):
        sbx.snapshot()
    assert sbx.run("os.close(r); os.close(w); 1").value == 1
    sbx.fork().close()


def test_a_session_that_has_ended_has_no_snapshot(sbx: Sandbox) -> None:
    sbx.run("import os; os._exit(1)")
    with pytest.raises(SessionEnded):
        sbx.snapshot()


def test_a_snapshot_of_another_policy_is_refused(sbx: Sandbox) -> None:
    with Sandbox({"limits": {"wall": "7s"}}) as other:
        snapshot = other.snapshot()
        with pytest.raises(RequestError, match="belongs to another policy"):
            sbx.rollback(snapshot)
    assert sbx.run("1").value == 1


def test_a_policy_limits_the_memory_of_snapshots() -> None:
    with Sandbox({"session": {"snapshot_bytes": "1MiB"}}) as sbx:
        with pytest.raises(RequestError, match="1MiB of snapshots"):
            sbx.snapshot()
        assert sbx.run("1").value == 1


def test_forks_leave_nothing_behind() -> None:
    def descriptors() -> int:
        supervisor = sandfork._supervisor._shared
        assert supervisor is not None
        return len(os.listdir(f"/proc/{supervisor.process.pid}/fd"))

    def await_that(state: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not state():
            assert time.monotonic() < until, memory_files()
            time.sleep(0.05)

    def memory_files() -> list[str]:
        supervisor = sandfork._supervisor._shared
        assert supervisor is not None
        links = []
        for entry in pathlib.Path(f"/proc/{supervisor.process.pid}/fd").iterdir():
            # The descriptor may have been closed in the meantime.
            with contextlib.suppress(FileNotFoundError):
                links.append(os.readlink(entry))
        return [link for link in links if "sandfork-memory" in link or "sandfork-files" in link]

    with Sandbox() as sbx:
        sbx.run("x = 1")
        with sbx.snapshot() as snapshot:
            for _ in range(5):
                snapshot.fork().close()
        # The forks' processes end after `close` has returned.
        await_that(lambda: memory_files() == [])
        before = descriptors()
        with sbx.snapshot() as snapshot:
            assert len(memory_files()) == 2
            for _ in range(30):
                snapshot.fork().close()
                sbx.rollback(snapshot)
        await_that(lambda: memory_files() == [])
        # A worker that was prepared in the meantime holds some descriptors.
        await_that(lambda: descriptors() <= before + 30)


def test_async_interface_behaves_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    close, closing = AsyncSnapshot.close, []

    def closed(snapshot: AsyncSnapshot) -> None:
        closing.append(threading.current_thread())
        close(snapshot)

    monkeypatch.setattr(AsyncSnapshot, "close", closed)

    async def use() -> None:
        async with AsyncSandbox(tools={"who": lambda: "me"}) as sbx:
            await sbx.run("x = 1")
            async with await sbx.snapshot() as snapshot:
                forks = await snapshot.fork(3)
                values = await asyncio.gather(*(fork.run("x += 1; [x, who()]") for fork in forks))
                assert [value.value for value in values] == [[2, "me"]] * 3
                for fork in forks:
                    await fork.close()
                await sbx.run("x = 9")
                await sbx.rollback(snapshot)
            async with sbx.transaction():
                await sbx.run("x = 7; 1 / 0")
            assert (await sbx.run("x")).value == 1
            async with await sbx.fork() as fork:
                assert (await fork.run("x")).value == 1

    asyncio.run(use())
    # `close` waits for the supervisor, so it must not run in the event loop's thread.
    assert len(closing) == 3
    assert threading.main_thread() not in closing


def test_a_cancelled_copy_is_completed() -> None:
    async def use() -> None:
        async with AsyncSandbox() as sbx:
            await sbx.run("x = [1]; big = bytearray(30 << 20)")
            async with await sbx.snapshot() as snapshot:
                await sbx.run("x.append(2)")
                await sbx.add_tools({"later": lambda: "called"})
                for act in (sbx.snapshot, sbx.pause, lambda: sbx.rollback(snapshot)):
                    task = asyncio.create_task(act())
                    # By then the task has sent its request.
                    await asyncio.sleep(0)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                # The cancelled rollback took effect.
                assert (await sbx.run("[x, later()]")).value == [[1], "called"]

    asyncio.run(use())


def test_transaction_in_a_cancelled_anyio_scope_rolls_back() -> None:
    anyio = pytest.importorskip("anyio")

    async def use() -> None:
        async with AsyncSandbox() as sbx:
            await sbx.run("x = 1")
            with anyio.move_on_after(0.2):
                async with sbx.transaction():
                    await sbx.run("x = 2\nwhile True: pass")
            # The scope cancels its task at each of its awaits.
            assert (await sbx.run("x")).value == 1

    asyncio.run(use())

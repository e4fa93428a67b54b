"""Sandboxes that are saved as files and resumed in other processes."""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys

import pytest

from sandfork import AsyncSandbox, HostError, Policy, RequestError, Sandbox


def double(n: int) -> int:
    return 2 * n


ELSEWHERE = """
import sys, sandfork
def double(n):
    return 20 * n
with sandfork.Sandbox.resume(sys.argv[1], tools={"double": double}) as sbx:
    execution = sbx.run("xs.append(next(squares)); [xs, double(3), open('f').read()]")
    print(execution.value)
    failed = sbx.run("fails()")
    print("raise ValueError(xs)  # as it was written" in failed.error.traceback)
    sbx.pause(sys.argv[1])
"""


def test_sandbox_resumes_in_another_process(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "state"
    sbx = Sandbox(tools={"double": double})
    sbx.run("xs = [double(1)]; squares = (n * n for n in range(2, 9)); open('f', 'w').write('kept')")
    sbx.run("def fails():\n    raise ValueError(xs)  # as it was written")
    sbx.pause(path)
    assert not sbx.live
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["state"]
    command = [sys.executable, "-c", ELSEWHERE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[[2, 4], 60, 'kept']\nTrue\n"
    # The session is resumed here again, with the state that the other process saved.
    with Sandbox.resume(path, tools={"double": double}) as sbx:
        assert sbx.run("[xs, next(squares), double(3)]").value == [[2, 4], 9, 6]
        assert sbx.run("fails()").error is not None


def test_file_resumes_several_sandboxes_that_restart_fresh(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "state"
    with Sandbox() as sbx:
        sbx.run("import random; x = 1; random.seed(7)")
        with sbx.snapshot() as snapshot:
            assert snapshot.save(path) == path.stat().st_size
            sbx.run("x = 2")
            # The saved session continues.
            assert sbx.run("x").value == 2
    drawn = []
    for _ in range(2):
        with Sandbox.resume(path, variables={"y": 5}) as other:
            assert other.run("[x, y]").value == [1, 5]
            drawn.append(other.run("random.random()").value)
            with other.fork() as fork:
                assert fork.run("[x, y]").value == [1, 5]
                fork.restart()
                assert fork.run("y, 'x' in globals()").value == (5, False)
            other.restart()
            assert other.run("y, 'x' in globals()").value == (5, False)
    assert drawn[0] != drawn[1]


def test_a_missing_tool_and_another_policy_are_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "state"
    with Sandbox(tools={"double": double}) as sbx:
        sbx.pause(path)
    with Sandbox.resume(path) as other:
        error = other.run("double(1)").error
        assert error is not None
        assert error.name == "NameError"
    with pytest.raises(RequestError, match="was saved under another policy"):
        Sandbox.resume(path, {"limits": {"wall": "3s"}})
    with pytest.raises(RequestError, match="cannot be read: No such file or directory"):
        Sandbox.resume(tmp_path / "none")


def test_sandbox_continues_if_saving_fails(tmp_path: pathlib.Path) -> None:
    with Sandbox() as sbx:
        sbx.run("x = 1")
        with pytest.raises(RequestError, match="it cannot be saved as .*: No such file or directory"):
            sbx.pause(tmp_path / "none" / "state")
        sbx.run("import socket; s = socket.socketpair()")
        with pytest.raises(RequestError, match="is a socket; close it first"):
            sbx.pause(tmp_path / "state")
        assert sbx.run("x").value == 1
        with pytest.raises(RequestError, match="is a socket; close it first"):
            sbx.pause()
        assert not sbx.info.paused
    assert os.listdir(tmp_path) == []


def test_pause_without_a_path_ends_at_the_next_use() -> None:
    with Sandbox(tools={"double": double}) as sbx:
        sbx.run("xs = [double(1)]")
        sbx.pause()
        assert sbx.info.paused
        assert sbx.live
        assert sbx.run("[xs, double(3)]").value == [[2], 6]
        assert not sbx.info.paused


def test_asyncio(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "state"

    async def goes_on() -> None:
        async with AsyncSandbox() as sbx:
            await sbx.run("x = [1]")
            await sbx.pause()
            assert sbx.info.paused
            await sbx.pause(path)
            assert not sbx.live
        async with AsyncSandbox.resume(path) as sbx:
            assert (await sbx.run("x.append(2); x")).value == [1, 2]
            async with await sbx.snapshot() as snapshot:
                assert await snapshot.save(path) == path.stat().st_size
                snapshot.close()
                with pytest.raises(RequestError, match="the snapshot is closed"):
                    await snapshot.save(path)

    asyncio.run(goes_on())


def test_a_state_does_not_outlive_its_supervisor(tmp_path: pathlib.Path) -> None:
    program = f"""
import os, signal, sandfork
from sandfork import _supervisor

def ends(act):
    try:
        act()
    except (sandfork.SupervisorDied, sandfork.SessionEnded) as error:
        return
    raise AssertionError(act)

path = {str(tmp_path / "state")!r}
sbx = sandfork.Sandbox(variables={{"v": 1}})
sbx.run("x = 1")
snapshot = sbx.snapshot()
snapshot.save(path)
fork, resumed = snapshot.fork(), sandfork.Sandbox.resume(path)
os.kill(_supervisor._shared.process.pid, signal.SIGKILL)
with sandfork.Sandbox() as other, other.snapshot() as theirs:
    assert theirs.number != snapshot.number
    for act in (snapshot.fork, lambda: snapshot.save(path), lambda: other.rollback(snapshot)):
        ends(act)
    snapshot.close()
    with theirs.fork() as branch:
        print(branch.run("6 * 7").value)
    for one in (fork, resumed):
        ends(lambda: one.run("1"))
        one.restart()
        print(one.run("[name for name in ('v', 'x') if name in globals()]").value)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("42\n['v']\n[]\n", "")


def test_a_snapshot_of_a_supervisor_that_has_ended_cannot_be_saved(tmp_path: pathlib.Path) -> None:
    program = f"""
import sandfork
from sandfork import _supervisor
with sandfork.Sandbox() as sbx:
    snapshot = sbx.snapshot()
    _supervisor._shared.process.kill()
    _supervisor._shared.process.wait()
    try:
        snapshot.save({str(tmp_path / "state")!r})
    except sandfork.SupervisorDied as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "the supervisor has ended, and the snapshot with it" in done.stdout, done.stderr
    assert os.listdir(tmp_path) == []


def test_copy_is_refused_if_the_import_path_is_writable(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(filesystem={"write": [tmp_path / "writable"]})
    (tmp_path / "writable").mkdir()
    path = tmp_path / "state"
    with Sandbox(policy) as sbx, sbx.snapshot() as snapshot:
        sbx.run("x = 1")
        snapshot.save(path)
        ways = (sbx.fork, snapshot.fork, lambda: Sandbox.resume(path, policy))
        for way in ways:
            with monkeypatch.context() as patch:
                patch.syspath_prepend(tmp_path / "writable" / "lib")
                with pytest.raises(HostError, match="from which the caller imports modules"):
                    way()
            # The caller's import path is not part of a sandbox, so its snapshots remain usable.
            monkeypatch.syspath_prepend(tmp_path / str(len(sys.path)))
            with way() as copy:
                assert copy.run("1").value == 1

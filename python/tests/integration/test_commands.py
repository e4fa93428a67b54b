"""Programs that run in a session, beside its cells."""

from __future__ import annotations

import asyncio
import errno
import signal
import threading

import pytest

import sandfork
from sandfork import AsyncSandbox, CommandResult, RequestError, RunningCommand, Sandbox

from ..support.descriptors import assert_closed_since, opened

MANY = 300_000


def test_programs_and_cells_share_a_session(sbx: Sandbox) -> None:
    sbx.run("open('made', 'w').write('by a cell')")
    result = sbx.commands.run("cat made; echo to stderr >&2; exit 3")
    assert result == CommandResult("exited", 3, None, None, "by a cell", "to stderr\n")
    assert not result.ok
    sbx.files.make_dir("below")
    result = sbx.commands.run(["sh", "-c", "pwd; echo $WORD"], cwd="below", env={"WORD": "ü"})
    assert (result.stdout, result.ok) == ("/work/below\nü\n", True)


def test_a_program_runs_while_a_cell_waits_for_it(sbx: Sandbox) -> None:
    code = "import os, time\nwhile not os.path.exists('answer'):\n    time.sleep(0.001)"
    cell = threading.Thread(target=sbx.run, args=(code,))
    cell.start()
    try:
        assert sbx.commands.run("touch answer").ok
    finally:
        cell.join()


def test_input_is_written_while_output_is_read(sbx: Sandbox) -> None:
    result = sbx.commands.run(["cat"], stdin="x" * MANY)
    assert result.ok
    assert result.stdout == "x" * MANY
    # A program need not read its input.
    assert sbx.commands.run(["true"], stdin="x" * MANY).ok


def test_callbacks_receive_text_as_it_arrives(sbx: Sandbox) -> None:
    seen: list[tuple[str, str]] = []
    result = sbx.commands.run(
        "echo out; echo err >&2",
        on_stdout=lambda text: seen.append(("out", text)),
        on_stderr=lambda text: seen.append(("err", text)),
    )
    assert sorted(seen) == [("err", "err\n"), ("out", "out\n")]
    assert (result.stdout, result.stderr) == ("out\n", "err\n")


def test_background_program_receives_input(sbx: Sandbox) -> None:
    command = sbx.commands.run(["cat"], stdin=True, background=True)
    assert [one.pid for one in sbx.commands.list()] == [command.pid]
    assert sbx.commands.connect(command.pid) is command
    assert "running" in repr(command)
    waited: list[CommandResult] = []
    waiting = threading.Thread(target=lambda: waited.append(command.wait()))
    waiting.start()
    command.send_stdin("one\n")
    command.send_stdin(b"two\n")
    command.close_stdin()
    waiting.join()
    assert waited[0].stdout == command.stdout == "one\ntwo\n"
    assert command.wait() is waited[0]
    assert sbx.commands.list() == []
    with pytest.raises(sandfork.RequestError, match="has ended, or never was"):
        sbx.commands.connect(command.pid)
    with pytest.raises(sandfork.RequestError, match="has ended, or never was"):
        command.kill()


def test_programs_are_ended(sbx: Sandbox) -> None:
    first = sbx.commands.run(["sleep", "600"], background=True)
    second = sbx.commands.run(["sleep", "600"], background=True)
    first.kill(signal.SIGTERM)
    sbx.commands.kill(second.pid)
    assert (first.wait().signal, second.wait().signal) == (signal.SIGTERM, signal.SIGKILL)
    assert sbx.commands.run("sleep 600", timeout=0.1).status == "timeout"
    assert sbx.commands.run("true", timeout=10**400).ok
    result = sbx.commands.run(["yes"], output=10_000)
    assert (result.status, len(result.stdout)) == ("output-limit", 10_000)
    with Sandbox({"limits": {"wall": "1s"}}) as brief:
        assert brief.commands.run(["sleep", "600"]).status == "timeout"
        third = brief.commands.run(["sleep", "600"], background=True)
        brief.restart()
        lost = third.wait()
        assert (lost.status, lost.exit_code) == ("lost", None)
        assert lost.why is not None
        assert brief.commands.run(["true"]).ok


def test_program_gets_a_terminal(sbx: Sandbox) -> None:
    shell = sbx.commands.run(["/bin/sh"], background=True, pty=(30, 100))
    shell.send_stdin("stty size; tty; touch seen\n")
    assert sbx.commands.run("until test -e seen; do sleep 0.01; done").ok
    shell.resize(40, 120)
    shell.send_stdin("until stty size | grep '^40 120'; do sleep 0.01; done; exit 4\n")
    result = shell.wait()
    assert result.exit_code == 4
    assert "30 100" in result.stdout
    assert "/dev/pts/" in result.stdout
    assert "40 120" in result.stdout


def test_failed_program_start_raises_with_the_reason(sbx: Sandbox) -> None:
    with pytest.raises(sandfork.RequestError, match="`no-such-program` could not be started"):
        sbx.commands.run(["no-such-program"])
    with pytest.raises(sandfork.RequestError, match="`/bin/sh` could not be started in `no/such`"):
        sbx.commands.run("true", cwd="no/such")
    with pytest.raises(sandfork.RequestError, match="at least one argument"):
        sbx.commands.run([])
    with pytest.raises(sandfork.RequestError, match="the input is of type float"):
        sbx.commands.run(["cat"], stdin=1.5)  # type: ignore[arg-type]
    with Sandbox("strict") as strict, pytest.raises(sandfork.RequestError, match=r"filesystem\.system"):
        strict.commands.run(["true"])
    with pytest.raises(sandfork.RequestError, match="pty is 5: give True, False or rows and columns"):
        sbx.commands.run(["true"], pty=5)  # type: ignore[arg-type]
    with Sandbox({"limits": {"pids": 3}}) as few:
        few.commands.run(["sleep", "600"], background=True)
        with pytest.raises(sandfork.RequestError, match=r"as many processes as `limits\.pids`"):
            few.commands.run(["sleep", "600"])
    with pytest.raises(sandfork.RequestError, match="without standard input"):
        sbx.commands.run(["sleep", "600"], background=True).send_stdin("x")
    sbx.run("import os; os._exit(1)")
    with pytest.raises(sandfork.SessionEnded):
        sbx.commands.run(["true"])
    with Sandbox(on_death="restart", variables={"v": 1}) as revived:
        revived.run("import os; os._exit(1)")
        assert revived.commands.run(["true"]).ok
        assert revived.get("v") == 1
        revived.run("import os; os._exit(1)")
        revived.files.watch().close()
    sbx.close()
    with pytest.raises(sandfork.SessionClosed):
        sbx.commands.run(["true"])


def kill_worker(sbx: Sandbox) -> None:
    """Ends a session between two cells, with a program that was reported as started."""
    worker = sbx.run("import os\nos.getpid()").value
    line = f"read go; kill -KILL {worker}; exec sleep 600"
    assert sbx.commands.run(line, stdin=b"go\n").status == "lost"


def test_session_killed_by_a_program_is_reported_as_ended(sbx: Sandbox) -> None:
    kill_worker(sbx)
    with pytest.raises(sandfork.SessionEnded, match=r"signal 9 between two cells: variables, .*restart\(\)"):
        sbx.commands.run(["true"])
    assert not sbx.live
    with Sandbox(on_death="restart", variables={"v": 1}) as revived:
        kill_worker(revived)
        assert revived.commands.run(["true"]).ok
        kill_worker(revived)
        assert revived.files.watch().ended is None
        assert revived.get("v") == 1


def test_no_descriptor_is_leaked() -> None:
    with Sandbox() as sbx:
        sbx.commands.run(["true"])
        before = opened()
        for _ in range(3):
            sbx.commands.run(["true"])
            command = sbx.commands.run(["sleep", "600"], background=True)
            command.kill()
            command.wait()
            sbx.commands.list()
        assert_closed_since(before)


async def listed(sbx: AsyncSandbox, count: int) -> list[RunningCommand]:
    """The running programs, once there are so many."""
    for _ in range(100_000):
        found = await sbx.commands.list()
        if len(found) == count:
            return found
    raise AssertionError(found)


async def test_programs_of_an_event_loop() -> None:
    async with AsyncSandbox() as sbx:
        seen: list[str] = []

        async def see(text: str) -> None:
            seen.append(text)

        results = await asyncio.gather(*(sbx.commands.run(f"echo {n}", on_stdout=see) for n in range(4)))
        assert [one.stdout for one in results] == ["0\n", "1\n", "2\n", "3\n"]
        assert sorted(seen) == ["0\n", "1\n", "2\n", "3\n"]
        command = await sbx.commands.run(["cat"], stdin=True, background=True)
        waiting = asyncio.ensure_future(command.wait())
        cell = asyncio.ensure_future(sbx.run("1 + 1"))
        await command.send_stdin("text")
        assert [one.argv for one in await sbx.commands.list()] == [["cat"]]
        await command.close_stdin()
        assert (await waiting).stdout == "text"
        assert (await cell).value == 2
        # A cancelled wait in the foreground ends the program.
        running = asyncio.ensure_future(sbx.commands.run(["sleep", "600"]))
        assert len(await listed(sbx, 1)) == 1
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await listed(sbx, 0) == []


def test_a_program_may_end_before_its_input_arrives(sbx: Sandbox) -> None:
    for _ in range(50):
        assert sbx.commands.run(["true"], stdin="x").ok


def test_arguments_may_be_as_long_as_the_kernel_takes_them(sbx: Sandbox) -> None:
    long = "x" * (64 << 10)
    result = sbx.commands.run(["printf", "%s", *[long] * 16], output=2 << 20)
    assert result.stdout == long * 16
    with pytest.raises(RequestError, match="longer than") as raised:
        sbx.commands.run(["printf", *[long] * 24])
    assert raised.value.errno is None
    # The list truncates arguments.
    command = sbx.commands.run(["sh", "-c", "sleep 600; :", long], background=True)
    assert [one.argv for one in sbx.commands.list()] == [["sh", "-c", "sleep 600; :"]]
    command.kill()


def test_failed_program_start_gives_the_reason(sbx: Sandbox) -> None:
    for name, number in (("no-such-program", errno.ENOENT), ("/etc/passwd", errno.EACCES)):
        with pytest.raises(RequestError) as raised:
            sbx.commands.run([name])
        assert raised.value.errno == number

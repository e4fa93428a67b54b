"""The supervisor as a process: found, started, shared, forked away from, killed, and gone at the end."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import sandfork
from sandfork import Sandbox, _binary, _supervisor

from ..support import processes
from ..support.descriptors import assert_closed_since, opened

SOURCE = pathlib.Path(sandfork.__file__).parents[1]


def supervisor() -> int:
    """The process id of this process's supervisor."""
    assert _supervisor._shared is not None
    return _supervisor._shared.process.pid


def script(code: str, *, before: str = "", **options: object) -> subprocess.Popen[str]:
    """A separate host process. It does what is `before` without the package."""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", f"{before}\nimport sandfork, os, sys, time\n{code}"]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload, no-any-return]


def test_one_supervisor_serves_the_whole_process() -> None:
    sandfork.run("1")
    first = supervisor()
    with Sandbox() as one, Sandbox() as two:
        one.set(x=1)
        two.set(x=2)
        assert (one.get("x"), two.get("x")) == (1, 2)
    threads = [threading.Thread(target=sandfork.run, args=("1",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert supervisor() == first


def test_no_descriptor_or_process_is_leaked() -> None:
    sandfork.run("1")
    before = opened()
    for _ in range(3):
        with Sandbox(tools={"f": lambda: 1}) as sbx:
            sbx.run("f()")
            sbx.set(x=os.urandom(1 << 20))
            sbx.get("x")
            sbx.files.write("f", b"1")
            sbx.files.read("f")
        sandfork.run("1/0", stdin=b"x")
        with pytest.raises(sandfork.PolicyError):
            sandfork.run("1", policy="nothing", stdin="x")
    abandoned = Sandbox()
    abandoned.run("1")
    workers = processes.descendants(supervisor())
    del abandoned
    gc.collect()
    assert_closed_since(before)
    deadline = time.monotonic() + 60
    # Their number may differ, because another connection may have been prepared meanwhile.
    while workers <= processes.descendants(supervisor()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not workers <= processes.descendants(supervisor())


def test_work_at_interpreter_exit_finds_its_session_closed() -> None:
    ending = script(
        """
import atexit

def late():
    try:
        sbx.run("1")
    except sandfork.SessionClosed:
        print("closed")

atexit.register(late)
sbx = sandfork.Sandbox()
seen = []
watch = sbx.files.watch(on_event=seen.append)
sbx.run("open('a', 'w').close()")
while not seen:
    time.sleep(0.01)
""",
        stderr=subprocess.PIPE,
    )
    stdout, stderr = ending.communicate()
    assert (stdout, stderr, ending.returncode) == ("closed\n", "", 0)


@pytest.mark.parametrize("start", ["sandfork.run", "sandfork.Sandbox().run"])
def test_daemon_threads_find_their_sessions_closed_at_the_interpreters_exit(start: str) -> None:
    # `atexit` runs the function that was registered first last.
    before = "import atexit, threading\natexit.register(lambda: thread.join())"
    code = f"""
running = threading.Event()

def run():
    try:
        called = {start}
        called("print(1, flush=True); import time; time.sleep(60)", on_stdout=lambda text: running.set())
    except sandfork.SessionClosed:
        print("closed")

thread = threading.Thread(target=run, daemon=True)
thread.start()
running.wait()
"""
    with script(code, before=before, stderr=subprocess.PIPE) as host:
        ended = host.communicate(timeout=120)
    assert (ended, host.returncode) == (("closed\n", ""), 0)


def test_one_spare_connection_is_prepared() -> None:
    sandfork.run("1")
    shared = _supervisor._shared
    assert shared is not None
    (standing_by,) = shared._spare
    with Sandbox() as sbx:
        link = sbx._driver.resources.link
        assert link is not None
        assert link.connection.socket is standing_by
        assert not shared._spare
        assert sbx.run("6 * 7").value == 42
        (another,) = shared._spare
        # A connection that the supervisor has closed is not used.
        another.shutdown(socket.SHUT_RDWR)
        with Sandbox() as other:
            assert (sbx.run("6").value, other.run("7").value) == (6, 7)
        assert another.fileno() == -1
        sbx.close()
        assert len(shared._spare) == 1
    shared.end()
    assert not shared._spare


def test_a_supervisor_that_is_killed_in_the_middle_of_a_cell() -> None:
    with Sandbox() as sbx, Sandbox(on_death="restart", variables={"v": 1}) as other:
        family = processes.descendants(supervisor()) | {processes.of(supervisor())}
        killer = threading.Timer(0.3, os.kill, (supervisor(), signal.SIGKILL))
        killer.start()
        with pytest.raises(sandfork.SupervisorDied, match="was ended by signal 9.*another supervisor"):
            sbx.run("import time; time.sleep(20)")
        processes.assert_gone(family)
        with pytest.raises(sandfork.SessionEnded, match="its supervisor died"):
            sbx.run("1")
        # A session without an active request gets the error with its next request.
        with pytest.raises(sandfork.SupervisorDied):
            other.run("v")
        again = other.run("v")
        assert (again.value, again.restarted) == (1, True)
        sbx.restart()
        assert sbx.run("2").value == 2
        assert sandfork.run("3").value == 3


@pytest.mark.parametrize("program", ["exit 3", "sleep 0.2; exit 3"])
def test_program_that_never_served_is_named(program: str, tmp_path: pathlib.Path) -> None:
    impostor = tmp_path / "sandfork"
    impostor.write_text(f"#!/bin/sh\n{program}\n")
    impostor.chmod(0o755)
    code = f"""
os.environ["SANDFORK_BINARY"] = {str(impostor)!r}

def restart():
    with sandfork.Sandbox(on_death="restart") as sbx:
        sbx.run("1")

for start in (lambda: sandfork.run("1"), sandfork.Sandbox, restart, lambda: list(sandfork.map(["1"]))):
    try:
        start()
    except sandfork.SystemFailure as error:
        print(error)
"""
    with script(code) as host:
        out, _ = host.communicate(timeout=60)
    said = f"exited with code 3, right after it started; its program is {impostor} (SANDFORK_BINARY names"
    assert (host.returncode, out.count(said), out.count("\n")) == (0, 4, 4)


def test_supervisor_killed_before_its_first_reply_loses_nothing(tmp_path: pathlib.Path) -> None:
    dies = tmp_path / "sandfork"
    dies.write_text(
        f'#!/bin/sh\nmkdir {tmp_path}/first 2>/dev/null && kill -KILL $$\nexec {_binary.find()} "$@"\n'
    )
    dies.chmod(0o755)
    code = f"""
os.environ["SANDFORK_BINARY"] = {str(dies)!r}
for run in (lambda: next(sandfork.map(["6 * 7"])), lambda: sandfork.run("6 * 7")):
    print(run().value)
    os.rmdir({str(tmp_path / "first")!r})
    shared = sandfork._supervisor._shared.process
    shared.kill()
    shared.wait()
"""
    with script(code) as host:
        out, _ = host.communicate(timeout=60)
    assert (host.returncode, out) == (0, "42\n42\n")


def test_supervisor_killed_between_cells_is_replaced() -> None:
    sandfork.run("1")
    os.kill(supervisor(), signal.SIGKILL)
    assert sandfork.run("6 * 7").value == 42


def test_stale_handles_reach_no_session_of_the_next_supervisor() -> None:
    with Sandbox() as sbx, Sandbox(on_death="restart", variables={"v": 1}) as kept:
        command = sbx.commands.run(["sleep", "600"], background=True)
        os.kill(supervisor(), signal.SIGKILL)
        with Sandbox() as other:
            theirs = other.commands.run(["sleep", "600"], background=True)
            assert theirs.pid == command.pid
            for act in (command.kill, lambda: command.send_stdin("x"), lambda: sbx.commands.kill(theirs.pid)):
                with pytest.raises((sandfork.SessionEnded, sandfork.SupervisorDied)):
                    act()
            for act in (lambda: sbx.commands.run("true"), sbx.files.watch, sbx.commands.list):
                with pytest.raises((sandfork.SessionEnded, sandfork.SupervisorDied)):
                    act()
            assert [one.pid for one in other.commands.list()] == [theirs.pid]
            # As with cells, the first call raises the error.
            with pytest.raises(sandfork.SupervisorDied):
                kept.commands.run("true")
            assert kept.commands.run("true").ok
            assert kept.get("v") == 1


def test_default_socket_timeout_does_not_apply() -> None:
    code = """
import socket
socket.setdefaulttimeout(600)
with sandfork.Sandbox() as sbx, sandfork.Sandbox() as other:
    print(sbx.run("6 * 7").value, other.commands.run("echo ran").stdout, end="")
    shared = sandfork._supervisor._shared
    print(shared.control.getblocking(), shared.control.gettimeout())
"""
    with script(code) as host:
        out, _ = host.communicate(timeout=60)
    assert (host.returncode, out) == (0, "42 ran\nTrue None\n")


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1), (0, 1, 2)])
def test_closed_standard_streams_are_not_connections(closed: tuple[int, ...]) -> None:
    code = f"""
kept = os.dup(1)
for number in {closed}:
    os.close(number)
with sandfork.Sandbox() as sbx:
    value = sbx.run("6 * 7").value
    os.write(kept, repr([value, sandfork.run("len(input())", stdin="x" * 100_000).value]).encode())
    for number in {closed}:
        try:
            os.fstat(number)
        except OSError:
            continue
        os.write(kept, b" is open")
"""
    with script(code) as host:
        out, _ = host.communicate(timeout=60)
    assert (host.returncode, out) == (0, "[42, 100000]")


def test_everything_ends_with_the_host() -> None:
    code = """
sbx = sandfork.Sandbox()
other = sandfork.Sandbox()
other.run("1")
print(sandfork._supervisor._shared.process.pid, flush=True)
sys.stdin.readline()
"""
    for end in ("exit", signal.SIGKILL, signal.SIGTERM):
        with script(code, stdin=subprocess.PIPE) as host:
            assert host.stdout is not None
            number = int(host.stdout.readline())
            family = processes.descendants(number) | {processes.of(number)}
            assert len(family) >= 4
            if isinstance(end, str):
                host.communicate("\n", timeout=60)
                assert host.returncode == 0
            else:
                host.send_signal(end)
                host.wait(60)
        processes.assert_gone(family)


def test_forked_process_starts_its_own_supervisor() -> None:
    code = """
sbx = sandfork.Sandbox(on_death="restart")
sbx.run("x = 1")
snap = sbx.snapshot()
sleeping = sbx.commands.run(["sleep", "600"], background=True)
ours = sandfork._supervisor._shared.process.pid
before = len(os.listdir("/proc/self/fd"))
reader, writer = os.pipe()
if os.fork() == 0:
    left = len(os.listdir("/proc/self/fd"))
    said = []
    for use in (lambda: sbx.run("x"), snap.fork, sleeping.kill):
        try:
            use()
        except sandfork.SessionForked as error:
            said.append(str(error))
    sbx.close()
    value = sandfork.run("6 * 7").value
    theirs = sandfork._supervisor._shared.process.pid
    os.write(writer, repr((said, value, theirs != ours, before + 2 - left)).encode())
    sys.exit(0)
os.close(writer)
print(os.read(reader, 1000).decode())
os.wait()
print(sbx.get("x"), sandfork._supervisor._shared.process.pid == ours)
"""
    with script(code) as host:
        out, _ = host.communicate(timeout=60)
    assert host.returncode == 0
    told, after = out.splitlines()
    said, value, apart, closed = eval(told)
    nouns = "session", "session", "program"
    whose = "belongs to the process that this one was forked from: open one here"
    assert said == [f"this {noun} {whose}" for noun in nouns]
    # The control socket, and the sockets of the session and the program.
    assert (value, apart, closed) == (42, True, 3)
    assert after == "1 True"


def test_forked_process_does_not_keep_a_dead_hosts_supervisor() -> None:
    code = """
sbx = sandfork.Sandbox()
sbx.run("1")
pid = sandfork._supervisor._shared.process.pid
if os.fork() == 0:
    time.sleep(60)
    os._exit(0)
print(pid, flush=True)
sys.stdin.readline()
"""
    with script(code, stdin=subprocess.PIPE, start_new_session=True) as host:
        assert host.stdout is not None
        number = int(host.stdout.readline())
        family = processes.descendants(number) | {processes.of(number)}
        children = processes.descendants(host.pid) - family
        try:
            host.kill()
            host.wait(60)
            processes.assert_gone(family)
            assert any(map(processes.is_alive, children))
        finally:
            for child in children:
                # A process that the supervisor started may have ended with it.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.number, signal.SIGKILL)


def _in_a_child(queue: object) -> None:
    queue.put(sandfork.run("6 * 7").value)  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_children_of_multiprocessing(method: str) -> None:
    sandfork.run("1")
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    children = [context.Process(target=_in_a_child, args=(queue,)) for _ in range(2)]
    for child in children:
        child.start()
    assert [queue.get() for _ in children] == [42, 42]
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert sandfork.run("1").value == 1


def test_ctrl_c_interrupts_the_cell_and_is_raised() -> None:
    code = """
def told(text):
    print(text, end="", flush=True)
sandfork._conversation._GRACE = 20
sbx = sandfork.Sandbox(on_stdout=told)
try:
    sbx.run("import time\\nx = 1\\nprint('running')\\ntime.sleep(30)")
except KeyboardInterrupt:
    print("raised", sbx.get("x"), flush=True)
sys.stdin.readline()
"""
    with script(code, stdin=subprocess.PIPE, start_new_session=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "running\n"
        # To the whole process group, as a terminal does. The supervisor is not part of it.
        os.killpg(host.pid, signal.SIGINT)
        assert host.stdout.readline() == "raised 1\n"
        host.communicate("\n", timeout=60)
        assert host.returncode == 0


STUBBORN = """
import time
while True:
    try:
        print("running")
        time.sleep(9)
    except KeyboardInterrupt:
        pass
"""


def test_ctrl_c_ends_an_uninterruptible_cell() -> None:
    code = f"""
sbx = sandfork.Sandbox(on_stdout=lambda text: print(text, end="", flush=True))
try:
    sbx.run({STUBBORN!r})
except KeyboardInterrupt:
    try:
        sbx.run("1")
    except sandfork.SessionEnded as error:
        print(error, flush=True)
"""
    with script(code, start_new_session=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "running\n"
        os.killpg(host.pid, signal.SIGINT)
        *_, last = host.stdout
        assert "the session ended when its caller" in last


@pytest.mark.parametrize(
    ("binary", "said"),
    [
        ("/no/such/program", "SANDFORK_BINARY is '/no/such/program', which is no file that can be executed"),
        ("/etc/passwd", "no file that can be executed"),
    ],
)
def test_invalid_program_is_named(monkeypatch: pytest.MonkeyPatch, binary: str, said: str) -> None:
    monkeypatch.setattr(_supervisor, "_shared", None)
    monkeypatch.setenv("SANDFORK_BINARY", binary)
    before = opened()
    with pytest.raises(sandfork.BinaryNotFound, match=said):
        sandfork.run("1")
    assert_closed_since(before)


@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 3\n", "#!/no/such/shell\n"])
def test_a_program_that_ends_at_once_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, content: str
) -> None:
    program = tmp_path / "sandfork"
    program.write_text(content)
    program.chmod(0o755)
    monkeypatch.setattr(_supervisor, "_shared", None)
    monkeypatch.setenv("SANDFORK_BINARY", str(program))
    before = opened()
    with pytest.raises(sandfork.SandforkError) as caught:
        Sandbox()
    ended = isinstance(caught.value, (sandfork.SupervisorDied, sandfork.SystemFailure))
    assert ("exited with code 3" if ended else "could not be executed") in str(caught.value)
    if _supervisor._shared is not None:
        _supervisor._shared.end()
        monkeypatch.setattr(_supervisor, "_shared", None)
    gc.collect()
    assert_closed_since(before)

"""The interface of a session."""

from __future__ import annotations

import copy
import gc
import pathlib
import pickle
import threading
import time
import weakref

import pytest

import sandfork
from sandfork import Sandbox

from .support.fake import FakeSupervisor, ends_when_interrupted
from .support.races import interrupt_behind_cells


def test_variables_persist_from_cell_to_cell(fake: FakeSupervisor) -> None:
    with Sandbox() as sbx:
        assert sbx.run("x = 20").value is None
        execution = sbx.run("x + 1")
        assert (execution.value, execution.text, execution.status) == (21, "21", "ok")
        assert execution.ok
        assert execution.error is None
        assert execution.execution_count == 2
        assert sbx.get("x") == 20
        sbx.set(x=1, y=[1.5, {"k": b"\0"}])
        assert sbx.get("y") == [1.5, {"k": b"\0"}]
        with pytest.raises(sandfork.UndefinedVariable, match="no variable 'z'"):
            sbx.get("z")


def test_a_sandbox_is_not_pickled(fake: FakeSupervisor) -> None:
    with Sandbox() as sbx:
        sbx.run("x = 1")
        for of_it in (sbx, sbx.commands, sbx.files):
            for act in (pickle.dumps, copy.deepcopy):
                with pytest.raises(TypeError, match="a session is neither pickled nor deep-copied"):
                    act(of_it)


def test_session_is_opened_with_its_arguments(fake: FakeSupervisor) -> None:
    with Sandbox("tenant.toml", count_tool_time=True, timeout=2, variables={"a": 1}) as sbx:
        sbx.run("a")
        opened, variables, cell = fake.session.heard
    assert opened["policy"]["name"] == "tenant.toml"
    assert opened["tool_time"] == {"at_most": 0.0}
    assert opened["version"] == 2
    assert variables["variables"] == [["a", 1]]
    assert cell["wall"] == 2.0
    assert cell["filename"] == "<cell 1>"
    # Fields with their default values are not sent.
    assert not {"argv", "last", "then", "stream"} & cell.keys()
    assert sbx.info.limits["limits.wall"] == 30.0
    assert sbx.info.python.version == "3.11.2"


def test_arguments_of_a_cell_are_sent(fake: FakeSupervisor) -> None:
    with Sandbox(timeout=2) as sbx:
        sbx.run("x", timeout=0.5, filename="<code 3>", last="statement", variables={"x": 1})
        cell = fake.session.heard[-1]
    assert (cell["wall"], cell["filename"], cell["last"]) == (0.5, "<code 3>", "statement")


def test_a_file_of_the_host_is_run_under_its_name(fake: FakeSupervisor, tmp_path) -> None:
    program = tmp_path / "agent.py"
    program.write_bytes("# coding: latin-1\nx = '\xe9'\n".encode("latin-1"))
    with Sandbox() as sbx:
        assert sbx.run_file(program, argv=["--fast"]).ok
        assert sbx.get("x") == "\xe9"
        cell = next(heard for heard in fake.session.heard if heard["kind"] == "cell")
    assert (cell["filename"], cell["argv"]) == (str(program), ["--fast"])


def test_output_is_kept_and_reported_as_it_arrives(fake: FakeSupervisor) -> None:
    def speak(session, cell):
        session.output("one\n")
        session.output(b"\xe2\x82")
        session.output("bad", stream="stderr")
        session.output(b"\xac\xff")
        session.outcome(cell)

    fake.on("speak", speak)
    out, err = [], []
    with Sandbox(on_stdout=out.append) as sbx:
        execution = sbx.run("speak", on_stderr=err.append)
        assert fake.session.heard[-1]["stream"] is True
        sbx.run("1")
    assert out == execution.logs.stdout == ["one\n", "\u20ac\ufffd"]
    assert err == execution.logs.stderr == ["bad"]


def test_incomplete_character_is_replaced_at_the_end(fake: FakeSupervisor) -> None:
    def speak(session, cell):
        session.output(b"a\xe2\x82")
        session.outcome(cell)

    fake.on("speak", speak)
    out = []
    with Sandbox() as sbx:
        assert sbx.run("speak", on_stdout=out.append).logs.stdout == ["a", "\ufffd"]
    assert out == ["a", "\ufffd"]


def test_callback_exception_propagates_and_keeps_the_session(fake: FakeSupervisor) -> None:
    def speak(session, cell):
        session.output("one")
        assert session.interrupted.wait(60)
        session.output("two")
        session.outcome(cell, status="interrupted")

    def fail(text):
        raise LookupError(text)

    fake.on("speak", speak)
    with Sandbox() as sbx:
        with pytest.raises(LookupError, match="one"):
            sbx.run("speak", on_stdout=fail)
        assert sbx.run("1").value == 1


def test_cancelled_caller_makes_no_connection_decision(fake: FakeSupervisor) -> None:
    def ask(session, cell):
        session.output("one")
        assert session.interrupted.wait(60)
        question = {"question": 4, "host": "db.example", "port": 443, "addresses": []}
        session.wire.send({"kind": "connect", **question})
        session.outcome(cell, status="interrupted")

    def fail(*_):
        raise LookupError

    asked = []
    fake.on("ask", ask)
    fake.on("decide", lambda session, request: None)
    with Sandbox(on_connect=lambda *question: asked.append(question)) as sbx:
        with pytest.raises(LookupError):
            sbx.run("ask", on_stdout=fail)
        assert sbx.run("1").value == 1
        (decided,) = (heard for heard in fake.session.heard if heard["kind"] == "decide")
    assert (decided["question"], decided["allowed"], asked) == (4, None, [])


def test_fork_restarts_fresh_without_its_snapshot(fake: FakeSupervisor) -> None:
    fake.on(
        "snapshot",
        lambda session, request: session.wire.send(
            {"kind": "snapshot", "id": request.header["id"], "snapshot": 9, "bytes": 1}
        ),
    )
    fake.on("die", lambda session, cell: session.wire.socket.shutdown(2))
    # A saved state is opened in the same way as a snapshot.
    with Sandbox.resume("/state", variables={"v": 1}) as sbx, sbx.fork() as fork:
        opened, *others = fake.sessions[-1].heard
        assert (opened["snapshot"], "saved" in opened, others) == (9, False, [])
        for one in (fork, sbx):
            with pytest.raises(sandfork.SupervisorDied):
                one.run("die")
            one.restart()
            assert not {"snapshot", "saved"} & fake.sessions[-1].heard[0].keys()
            assert one.get("v") == 1


def test_removed_current_directory_is_named_if_needed(
    fake: FakeSupervisor, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with Sandbox(), Sandbox(policy={}):
        for session in fake.sessions:
            assert session.heard[0]["policy"]["directory"] == "/the current directory was removed"
    with pytest.raises(sandfork.RequestError, match="the current directory cannot be found: No such file"):
        Sandbox.resume("state")


def test_a_second_caller_is_refused_at_once(fake: FakeSupervisor) -> None:
    running, done = threading.Event(), threading.Event()

    def slow(session, cell):
        running.set()
        done.wait(60)
        session.outcome(cell, value="done")

    fake.on("slow", slow)
    with Sandbox() as sbx:
        results = []
        thread = threading.Thread(target=lambda: results.append(sbx.run("slow").value))
        thread.start()
        assert running.wait(60)
        with pytest.raises(sandfork.SessionBusy, match="one caller at a time"):
            sbx.run("1")
        with pytest.raises(sandfork.SessionBusy):
            sbx.files.read("a")
        done.set()
        thread.join()
        assert results == ["done"]
        assert sbx.run("1").value == 1


def test_a_cell_is_interrupted_from_another_thread(fake: FakeSupervisor) -> None:
    def loop(session, cell):
        sbx.interrupt()
        assert session.interrupted.wait(60)
        error = {"name": "KeyboardInterrupt", "message": "", "traceback": ""}
        session.outcome(cell, status="exception", error=error)

    fake.on("loop", loop)
    with Sandbox() as sbx:
        sbx.interrupt()
        execution = sbx.run("loop")
        assert execution.error is not None
        assert execution.error.name == "KeyboardInterrupt"
        interrupts = [heard for heard in fake.session.heard if heard["kind"] == "interrupt"]
        # The interrupt without a running cell was not sent.
        assert len(interrupts) == 1
        assert sbx.run("1").value == 1


def test_interrupt_right_after_the_cell_is_not_lost(
    fake: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.on("loop", ends_when_interrupted)
    with Sandbox() as sbx:
        interrupt_behind_cells(monkeypatch, sbx.interrupt)
        assert sbx.run("loop").status == "interrupted"


def test_closing_ends_an_active_call(fake: FakeSupervisor) -> None:
    sbx = Sandbox()
    closing = threading.Thread(target=sbx.close)
    fake.on("loop", lambda session, cell: closing.start())
    with pytest.raises(sandfork.SessionClosed):
        sbx.run("loop")
    closing.join()
    with pytest.raises(sandfork.SessionClosed, match="open another"):
        sbx.run("1")
    sbx.close()
    assert repr(sbx).startswith("<Sandbox closed")


def test_garbage_ends_its_session(fake: FakeSupervisor) -> None:
    around: list[Sandbox] = []
    sbx = Sandbox(tools={"own": around.copy})
    around.append(sbx)
    assert sbx.run("1").ok
    gone = weakref.ref(sbx)
    session = fake.session
    del sbx, around
    gc.collect()
    assert gone() is None
    deadline = time.monotonic() + 60
    while session.wire.socket.fileno() != -1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert session.wire.socket.fileno() == -1


def test_the_last_reference_ends_its_session(fake: FakeSupervisor) -> None:
    gc.collect()
    gc.disable()
    try:
        sbx = Sandbox()
        assert sbx.run("1").ok
        files, resources = sbx.files, sbx._driver.resources
        del sbx
        assert not resources.closed
        del files
        assert resources.closed
    finally:
        gc.enable()


def test_ended_session_lists_what_is_lost(fake: FakeSupervisor) -> None:
    def die(session, cell):
        limit = {"name": "limits.memory", "by": "cgroup"}
        session.outcome(cell, status="memory-limit", exit_code=137, limit=limit, session="ended")

    fake.on("die", die)
    with Sandbox(variables={"kept": 1}) as sbx:
        sbx.run("x = 1")
        execution = sbx.run("die")
        assert execution.session == "ended"
        assert execution.error is not None
        assert execution.error.name == "MemoryLimit"
        assert execution.error.value == "the cell reached its limit of 64 MiB of memory (limits.memory)"
        with pytest.raises(sandfork.SessionEnded) as caught:
            sbx.run("x")
        assert "its cell 2 (memory-limit" in str(caught.value)
        assert "variables, imports and files are lost" in str(caught.value)
        assert "restart()" in str(caught.value)
        sbx.restart()
        assert sbx.get("kept") == 1
        with pytest.raises(sandfork.UndefinedVariable):
            sbx.get("x")


def test_session_restarts_if_configured(fake: FakeSupervisor) -> None:
    fake.on(
        "die", lambda session, cell: session.outcome(cell, status="signal", exit_code=139, session="ended")
    )
    with Sandbox(tools={"add": lambda a, b: a + b}, variables={"v": 1}, on_death="restart") as sbx:
        died = sbx.run("die")
        assert died.error is not None
        assert died.error.value == "the guest was ended by signal 11 (SIGSEGV)"
        again = sbx.run("add(v, 2)")
        assert (again.value, again.restarted, again.execution_count) == (3, True, 1)
        assert not sbx.run("1").restarted


def test_session_ended_between_cells_restarts_if_configured(fake: FakeSupervisor) -> None:
    with Sandbox(on_death="restart") as sbx:
        sbx.run("x = 1")
        fake.session.alive = False
        assert sbx.run("'x' in globals()").restarted
        fake.session.alive = False
        sbx.set(y=2)
        assert sbx.run("y").restarted
    with Sandbox() as sbx:
        fake.sessions[1].alive = False
        with pytest.raises(sandfork.SessionEnded, match="worker is gone.*restart"):
            sbx.run("1")


def test_a_run_is_a_session_of_one_cell(fake: FakeSupervisor) -> None:
    out = []
    execution = sandfork.run("print(stdin)", argv=["a"], stdin="hello", timeout=3, on_stdout=out.append)
    assert (execution.logs.stdout, out) == (["hello\n"], ["hello\n"])
    opened, cell = fake.session.heard
    assert opened["set"] == ["stdio.stdin=pass"]
    assert (cell["then"], cell["filename"], cell["argv"], cell["wall"]) == ("end", "<string>", ["a"], 3.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": "2"}, "timeout is of type str"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"on_death": "ignore"}, "on_death is 'ignore'"),
        ({"tools": {"not a name": print}}, "'not a name' cannot be the name of a tool"),
        ({"tools": {"class": print}}, "'class' cannot be the name of a tool"),
        ({"tools": {"x": 3}}, "the tool 'x' is of type int"),
        ({"tools": [print, print]}, "two tools are called 'print'"),
        ({"variables": {"a b": 1}}, "'a b' cannot be the name of a variable"),
        ({"variables": 3}, "variables is of type int"),
        ({"tool_budget": -1}, "tool_budget is -1"),
        ({"tool_time": 0}, "tool_time is 0"),
        ({"tool_time": 5, "count_tool_time": True}, "tool_time is 5.0 and count_tool_time is set"),
        ({"policy": 3}, "policy is of type int"),
        ({"approve": "yes"}, "approve is of type str: give a function"),
        ({"on_connect": True}, "on_connect is of type bool"),
        ({"on_result": 1}, "on_result is of type int"),
    ],
)
def test_bad_arguments_are_refused(fake: FakeSupervisor, arguments, said: str) -> None:
    with pytest.raises(sandfork.RequestError) as caught:
        Sandbox(**arguments)
    assert said in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("path", [None, 5, b"state", "a\0b"])
def test_a_state_is_resumed_from_a_path(fake: FakeSupervisor, path: object) -> None:
    # In particular, `None` must not open a new sandbox.
    with pytest.raises(sandfork.RequestError, match="cannot be a path"):
        Sandbox.resume(path)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda sbx: sbx.run(b"1"), "the code is of type bytes"),
        (lambda sbx: sbx.run("'\ud800'"), "lone surrogate, U+D800"),
        (lambda sbx: sbx.run("1", filename="\ud800"), "lone surrogate (U+D800)"),
        (lambda sbx: sbx.run("1", last="word"), "last is 'word'"),
        (lambda sbx: sbx.run("#" * (17 << 20)), "write it to a file"),
        (lambda sbx: sbx.run_file(__file__, argv="abc"), "argv is a str"),
        (lambda sbx: sbx.run_file(__file__, argv=[3]), "argv has a int"),
        (lambda sbx: sbx.run_file(__file__, argv=["x" * (3 << 20)]), "more than the 2097152"),
        (lambda sbx: sbx.get("a.b"), "'a.b' cannot be the name"),
        (lambda sbx: sbx.set_variables({"x": bytes(65 << 20)}), "raise limits.memory"),
        (lambda sbx: sbx.files.read("a\0b"), "cannot be a path"),
        (lambda sbx: sbx.files.read(b"a"), "cannot be a path"),
        (lambda sbx: sbx.files.read(5), "5 cannot be a path"),
        (lambda sbx: sbx.run_file(None), "None cannot be a path"),
        (lambda sbx: sbx.run("1", filename=5), "filename is of type int"),
        (lambda sbx: sbx.run("1", on_stdout="x"), "on_stdout is of type str: give a function"),
        (lambda sbx: sbx.rollback("x"), "snapshot is of type str: give what `snapshot()` returned"),
        (lambda sbx: sbx.rollback(None), "snapshot is of type NoneType"),
        (lambda sbx: sbx.commands.run("true", cwd=5), "5 cannot be a path"),
        (lambda sbx: sbx.commands.run("true", env=5), "env is not a dict of texts"),
        (lambda sbx: sbx.commands.run("true", env={"A": 1}), "env is not a dict of texts"),
        (lambda sbx: sbx.commands.run("true", on_stderr=1), "on_stderr is of type int"),
        (lambda sbx: sbx.commands.run("true", output="1KiB"), "output is of type str"),
        (lambda sbx: sbx.commands.kill("x"), "pid is of type str"),
        (lambda sbx: sbx.commands.kill(2**40), "pid is 1099511627776: give a number from 0 to 4194304"),
        (lambda sbx: sbx.commands.kill(3, 2**40), "signal is 1099511627776"),
        (lambda sbx: sbx.commands.run("true", output=-1), "output is -1: give a number from 0 to"),
        (lambda sbx: sbx.commands.run("true", pty=(-1, 1)), "rows is -1: give a number from 0 to 65535"),
        (lambda sbx: sbx.commands.run("cat", stdin="\ud800"), "the input has a lone surrogate, U+D800"),
        (lambda sbx: sbx.files.write("f", "\ud800"), "the data has a lone surrogate, U+D800"),
        (lambda sbx: sbx.run_file(__file__, argv=["x"] * 66_000), "values, of which it may have 65536"),
        (lambda sbx: sbx.run("1", filename="x" * (5 << 18)), "one of more than 1048576 bytes"),
        (lambda sbx: sbx.files.watch(on_event=1), "on_event is of type int"),
    ],
)
def test_bad_requests_leave_the_session_as_it_was(fake: FakeSupervisor, call, said: str) -> None:
    with Sandbox() as sbx:
        before = len(fake.session.heard)
        with pytest.raises(sandfork.RequestError) as caught:
            call(sbx)
        assert said in str(caught.value)
        assert len(fake.session.heard) == before
        assert sbx.run("1").value == 1

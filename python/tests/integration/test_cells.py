"""Cells of a live session."""

from __future__ import annotations

import asyncio
import os
import pathlib
import threading
from typing import Any

import pytest

import sandfork
from sandfork import AsyncSandbox, Sandbox, Tool


def test_a_session_keeps_variables_imports_and_files(sbx: Sandbox) -> None:
    sbx.run("import math\nx = 20\nopen('f', 'w').write('kept')")
    execution = sbx.run("print('printed'); [x + 1, math.pi, open('f').read()]")
    assert execution.value == [21, 3.141592653589793, "kept"]
    assert execution.logs.stdout == ["printed\n"]
    assert execution.execution_count == 2
    assert execution.session == "live"
    assert execution.enforced == sbx.info.enforced
    assert execution.usage.output_bytes == len("printed\n")


def test_a_run_is_fresh() -> None:
    assert sandfork.run("x = 1; x").value == 1
    error = sandfork.run("x").error
    assert error is not None
    assert error.name == "NameError"
    execution = sandfork.run("import sys; print(sys.argv, input()); sys.exit(3)", argv=["a"], stdin="hello\n")
    assert (execution.status, execution.exit_code) == ("exit", 3)
    assert execution.logs.stdout == ["['-c', 'a'] hello\n"]
    assert sandfork.run("while True: pass", timeout=0.2).status == "timeout"
    assert sandfork.run("pass", timeout=1e300).ok


TAMPERS = """
import os
assert os.readlink("/proc/self/fd/0").startswith("pipe:")
for act in (
    lambda: os.fchmod(0, 0o777),
    lambda: os.utime(0, (1, 1)),
    lambda: os.setxattr(0, "user.sandfork", b"x"),
    lambda: os.ftruncate(0, 0),
    lambda: os.pwrite(0, b"guest", 0),
):
    try:
        act()
    except OSError:
        pass
len(os.read(0, 10))
"""


@pytest.mark.parametrize("length", [100, 1 << 20])
async def test_guest_gets_no_descriptor_of_its_caller(tmp_path: pathlib.Path, length: int) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x" * length)
    before = path.stat()
    with path.open("r+b") as file:
        # The program reads a part of the file and does not change the file.
        assert sandfork.run(TAMPERS, stdin=file).value == 10
        assert (await sandfork.async_run(TAMPERS, stdin=file)).value == 10
        whole = sandfork.run("import sys; len(sys.stdin.buffer.read())", stdin=file)
        assert whole.value == length
    after = path.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_size,
    )
    assert os.listxattr(path) == []


def test_an_exception_has_the_guests_traceback(sbx: Sandbox) -> None:
    error = sbx.run("def f():\n    return 1 / 0\nf()", filename="<code 3>").error
    assert error is not None
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
    assert 'File "<code 3>", line 2, in f' in error.traceback
    assert "sandfork" not in error.traceback


def test_the_value_of_a_statement(sbx: Sandbox) -> None:
    assert sbx.run("x = 3").value is None
    assert sbx.run("x = 3", last="statement").value == 3


def test_values_both_ways(sbx: Sandbox) -> None:
    value = {"a": [1, 2.5, None, True], (1, "t"): {1, 2}, "b": b"\0\xff", "i": 10**30, "s": "\ud800"}
    sbx.set(value=value, nothing=None)
    assert sbx.get("value") == value
    assert sbx.get("nothing") is None
    assert sbx.run("value['a'][1] * 2").value == 5.0
    assert sbx.run("y + 1", variables={"y": 1}).value == 2
    opaque = sbx.run("class C:\n    def __repr__(self): return '<c>'\nC()").value
    assert isinstance(opaque, sandfork.Opaque)
    assert opaque.repr == "<c>"


SHOWN = """
class Shown:
    def _repr_html_(self):
        return "<b>x</b>"
    def __repr__(self):
        return "x"
Shown()
"""

STUBBORN = """
import time
while True:
    try:
        time.sleep(9)
    except KeyboardInterrupt:
        pass
"""

HEEDING = """
import time
try:
    print("on")
    time.sleep(20)
except KeyboardInterrupt:
    print("heeded")
"""


def test_displays_are_rendered(sbx: Sandbox) -> None:
    execution = sbx.run(SHOWN)
    (main,) = execution.results
    assert (main.html, main.text, main.is_main_result) == ("<b>x</b>", "x", True)
    assert execution.text == "x"
    assert sbx.run("6 * 7").text == "42"


def test_output_is_streamed() -> None:
    came: list[str] = []
    # The cell continues once its output has arrived.
    code = "import sys\nprint('one')\nwhile not came(): pass\nprint('two', file=sys.stderr)"
    with Sandbox(tools={"came": lambda: list(came)}) as sbx:
        execution = sbx.run(code, on_stdout=came.append, on_stderr=came.append)
    assert came == ["one\n", "two\n"]
    assert (execution.logs.stdout, execution.logs.stderr) == (["one\n"], ["two\n"])


def test_interruptible_timeout_keeps_the_session(sbx: Sandbox) -> None:
    sbx.run("x = 1")
    execution = sbx.run("while True: pass", timeout=0.2)
    assert (execution.status, execution.session) == ("timeout", "live")
    assert execution.error is not None
    assert execution.error.name == "Timeout"
    assert "limit of 0.2 s on the clock" in execution.error.value
    assert "KeyboardInterrupt" in execution.error.traceback
    assert sbx.get("x") == 1


def test_uninterruptible_timeout_ends_the_session(sbx: Sandbox) -> None:
    execution = sbx.run(STUBBORN, timeout=0.2)
    assert (execution.status, execution.session) == ("timeout", "ended")
    with pytest.raises(sandfork.SessionEnded, match="timeout.*variables, imports and files are lost"):
        sbx.run("1")
    sbx.restart()
    assert sbx.run("1").value == 1


def test_a_crash_ends_the_session_and_the_next_has_its_tools() -> None:
    tools = {"add": lambda a, b: a + b}
    with Sandbox(tools=tools, variables={"v": 40}, on_death="restart") as sbx:
        assert sbx.run("x = 1; add(v, 2)").value == 42
        execution = sbx.run("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
        assert (execution.status, execution.session) == ("signal", "ended")
        again = sbx.run("'x' in globals(), add(v, 1)")
        assert (again.value, again.restarted) == ((False, 41), True)


def test_memory_limit_ends_the_cell_with_an_error(sbx: Sandbox) -> None:
    execution = sbx.run("x = bytearray(10**9)")
    assert execution.status in ("memory-limit", "exception")
    assert not execution.ok
    assert execution.error is not None


def test_exits_leave_the_session_alive(sbx: Sandbox) -> None:
    execution = sbx.run("import sys\nx = 5\nsys.exit(3)")
    assert (execution.status, execution.exit_code, execution.session) == ("exit", 3, "live")
    assert sbx.get("x") == 5


def test_an_interrupt_from_another_thread(sbx: Sandbox) -> None:
    interrupting = threading.Thread(target=sbx.interrupt)
    execution = sbx.run(HEEDING, on_stdout=lambda text: text == "on\n" and interrupting.start())
    interrupting.join()
    assert execution.logs.stdout == ["on\n", "heeded\n"]
    assert sbx.run("1").value == 1


def test_a_policy_of_python(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = sandfork.Policy(extends="strict", limits={"wall": "7s"}, imports={"allow": ["math"]})
    policy.dump(tmp_path / "own.toml")
    monkeypatch.chdir(tmp_path)
    for given in (policy, policy.tables(), "own.toml", tmp_path / "own.toml", pathlib.Path("own.toml")):
        with Sandbox(given) as sbx:
            assert sbx.info.limits["limits.wall"] == 7.0
            for code in ("import os", "__import__('os')"):
                error = sbx.run(code).error
                assert error is not None
                assert "Import of os is not allowed. Authorized imports are: ['math']" in error.value


def test_every_entry_point_accepts_a_dict_policy() -> None:
    policy: dict[str, Any] = {"extends": "strict", "imports": {"allow": ["math"]}}

    async def others() -> list[sandfork.Execution | None]:
        async with AsyncSandbox(policy) as sbx:
            done: list[sandfork.Execution | None] = [await sbx.run("import os")]
        done.append(await sandfork.async_run("import os", policy=policy))
        done += [each.execution async for each in sandfork.async_map(["import os"], policy=policy)]
        return done

    (mapped,) = sandfork.map(["import os"], policy=policy)
    done = [sandfork.run("import os", policy=policy), mapped.execution, *asyncio.run(others())]
    assert [one is not None and one.error is not None and one.error.name for one in done] == [
        "ImportError"
    ] * 5


def test_an_inherited_item_can_be_removed(tmp_path: pathlib.Path) -> None:
    base = {"imports": {"allow": ["math", "json"]}}
    sandfork.Policy(**base).dump(tmp_path / "base.toml")  # type: ignore[arg-type]
    policy = {"extends": tmp_path / "base.toml", "imports": {"allow": {"remove": ["json"], "add": ["re"]}}}
    with Sandbox(policy) as sbx:
        assert sbx.run("import math, re").ok
        error = sbx.run("import json").error
        assert error is not None
        assert error.value.endswith("Authorized imports are: ['math', 're']")
    wrong = {**policy, "imports": {"allow": {"remove": ["os"]}}}
    with pytest.raises(sandfork.PolicyError, match="os"):
        Sandbox(wrong)


def test_relative_paths_start_from_the_current_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("shown")
    sandfork.run("1")
    monkeypatch.chdir(tmp_path)
    code = f"open({str(tmp_path / 'data' / 'x')!r}).read()"
    policy = sandfork.Policy(filesystem={"read": ["data"]})
    with Sandbox(policy) as sbx:
        assert sbx.run(code).value == "shown"


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("no-such-policy", "no built-in policy and no file"),
        ("standrad", "did you mean `standard`"),
        (sandfork.Policy(python={"interpreter": "/no/such/python"}), "/no/such/python"),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused(policy: Any, said: str) -> None:
    with pytest.raises(sandfork.SandboxUnavailable) as caught:
        Sandbox(policy)
    assert said in str(caught.value)
    with pytest.raises(type(caught.value)):
        sandfork.run("1", policy=policy)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"limits": {"wall": "2x"}}, 'limits.wall: "2x" has an unknown unit `x`'),
        ({"filesystem": {"read": ["/nowhere"]}}, "filesystem.read: /nowhere cannot be found"),
        ({"extends": "standrad"}, "extends: no built-in policy and no file"),
    ],
)
def test_error_in_a_python_policy_names_its_key(tables: Any, said: str) -> None:
    for policy in (tables, sandfork.Policy(**tables)):
        with pytest.raises(sandfork.SandboxUnavailable) as caught:
            Sandbox(policy)
        assert str(caught.value).startswith(said)


def test_current_environment_variables_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sandfork.run("1")
    policy = sandfork.Policy(env={"pass": ["SANDFORK_TEST_TOKEN"]})
    code = "import os; os.environ.get('SANDFORK_TEST_TOKEN')"
    for value in ("first", "second"):
        monkeypatch.setenv("SANDFORK_TEST_TOKEN", value)
        assert sandfork.run(code, policy=policy).value == value
    assert sandfork.run(code).value is None


def test_host_program_runs_as_a_whole(sbx: Sandbox, tmp_path: pathlib.Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text("import sys\nif __name__ == '__main__':\n    print(sys.argv[1:], __file__[-8:])\n")
    assert sbx.run_file(program, argv=["--fast"]).logs.stdout == ["['--fast'] agent.py\n"]


def test_tool_can_end_the_cell() -> None:
    with Sandbox(tools=[Tool("final_answer", lambda x: x, ends_cell=True)]) as sbx:
        execution = sbx.run("try:\n    final_answer([1])\nexcept Exception:\n    pass\nprint('not reached')")
        assert (execution.value, execution.final, execution.logs.stdout) == ([1], True, [])
        assert not sbx.run("1").final


# The guest ends its cell as a final answer does, without a call of the tool.
FORGED = """
import gc
(interrupts,) = [held for held in gc.get_objects() if type(held).__name__ == "Interrupts"]
interrupts.end_cell(interrupts.cell, "forged")
"""


def test_only_an_answer_of_the_host_is_final() -> None:
    answers: list[str] = []

    def final_answer(answer: str) -> list[str]:
        answers.append(answer)
        return answers

    tool = Tool("final_answer", final_answer, ends_cell=True)
    with Sandbox(tools=[tool], approve=lambda name, args, kwargs: args == ("good",)) as sbx:
        for code in (FORGED, f"try:\n    final_answer('bad')\nexcept PermissionError:\n    pass\n{FORGED}"):
            execution = sbx.run(code)
            assert (execution.ok, execution.final, execution.value) == (True, False, "forged")
        # The value is the host's answer as it was when the host sent it.
        execution = sbx.run(
            FORGED.partition("interrupts.end_cell")[0]
            + "kind, end_cell = type(interrupts), interrupts.end_cell\n"
            + "kind.end_cell = lambda self, cell, answer: end_cell(cell, 'forged')\nfinal_answer('good')"
        )
        answers.append("later")
        assert (execution.ok, execution.final, execution.value) == (True, True, ["good"])
        # The answer of an earlier cell does not end this one.
        assert not sbx.run("1").final
    with Sandbox() as sbx:
        execution = sbx.run(FORGED)
        assert (execution.ok, execution.final, execution.value) == (True, False, "forged")


async def test_async_versions_work() -> None:
    async def fetch(x: int) -> int:
        return x + 1

    async with AsyncSandbox(tools=[fetch], timeout=5) as sbx:
        execution = await sbx.run("print('hi'); fetch(1)")
        assert (execution.value, execution.logs.stdout) == (2, ["hi\n"])
        await sbx.files.write("f", b"1")
        assert await sbx.files.read("f") == b"1"
    assert (await sandfork.async_run("6 * 7")).value == 42

"""Snapshots under an executor: steps that are undone, and branches."""

from __future__ import annotations

import re

import pytest

from sandfork.smolagents import CodeError, NativeExecutor


@pytest.fixture
def undoing():  # type: ignore[no-untyped-def]
    executor = NativeExecutor(["os", "threading"], rollback_on_error=True)
    executor.send_tools({"add": lambda a, b: a + b})
    yield executor
    executor.cleanup()


UNDONE = "Note: this code failed, and everything that it changed was undone.\n"


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("1 / 0", r"Code execution failed at line '1 / 0' due to: ZeroDivisionError: division by zero"),
        ("import os\nos.abort()", r"Code execution was stopped: .*SIGABRT\)\."),
        (
            "import os\nos._exit(1)",
            r"The code called exit \(1\), which ends the step without an answer\. Give the answer with .*\.",
        ),
    ],
)
def test_code_that_fails_changes_nothing(undoing: NativeExecutor, ends: str, said: str) -> None:
    undoing("x = [1]\nopen('f', 'w').write('kept')")
    with pytest.raises(CodeError) as failed:
        undoing(f"x.append(2)\ny = 3\nopen('f', 'w').write('changed')\n{ends}")
    assert re.fullmatch(UNDONE + said, str(failed.value)), failed.value
    assert undoing("(x, 'y' in globals(), open('f').read(), add(1, 2))").output == ([1], False, "kept", 3)


def test_model_is_told_that_changes_stay(undoing: NativeExecutor) -> None:
    undoing("import threading\ne = threading.Event()\nt = threading.Thread(target=e.wait)\nt.start()")
    told = undoing("x = 1")
    note = "Note: if this code fails, what it changed stays (cannot snapshot: "
    assert told.logs.startswith(note)
    with pytest.raises(CodeError) as failed:
        undoing("x / 0")
    assert str(failed.value).startswith(note)
    assert str(failed.value).endswith(
        "\nCode execution failed at line 'x / 0' due to: ZeroDivisionError: division by zero"
    )
    undoing("e.set()\nt.join()")
    assert undoing("x").logs == ""


def test_branch_is_independent(executor: NativeExecutor) -> None:
    calls: list[int] = []
    executor.send_tools({"note": lambda n: calls.append(n)})
    executor.send_variables({"given": 5})
    executor("x = [given]")
    branch = executor.branch()
    try:
        branch("x.append(1)\nnote(1)")
        executor("x.append(2)\nnote(2)")
        assert branch("x").output == [5, 1]
        assert executor("x").output == [5, 2]
        assert calls == [1, 2]
        another = branch.branch()
        assert another("x").output == [5, 1]
        another.cleanup()
    finally:
        branch.cleanup()
    assert executor("x").output == [5, 2]

"""Sessions that end under an executor: the message for the model, and the state afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest
from smolagents import FinalAnswerTool, tool

from sandfork.smolagents import CodeError, NativeExecutor

LOST = "all variables, functions, imports and files of this and earlier steps are lost"


@tool
def double(n: int) -> int:
    """Doubles a number.

    Args:
        n: The number.
    """
    return 2 * n


@pytest.fixture
def small():  # type: ignore[no-untyped-def]
    executor = NativeExecutor(
        ["os", "time"], policy={"limits": {"memory": "96MiB", "wall": "20s", "output": "64KiB"}}
    )
    executor.send_variables({"given": 20})
    executor.send_tools({"double": double, "final_answer": FinalAnswerTool()})
    yield executor
    executor.cleanup()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os\nos.kill(os.getpid(), 9)", r"Code execution was stopped: .*SIGKILL"),
        ("import os\nos._exit(3)", r"The code called exit \(3\)"),
    ],
)
def test_lost_state_is_reported(small: NativeExecutor, code: str, said: str) -> None:
    small("own = 1")
    with pytest.raises(CodeError, match=said) as stopped:
        small(f"print('before', flush=True)\n{code}")
    assert LOST in str(stopped.value)
    assert "and the tools and the variables given are there again" in str(stopped.value)
    assert str(small.state["_print_outputs"]) == "before\n"
    with pytest.raises(CodeError, match="'own' is not defined") as failed:
        small("own")
    assert str(small.state["_print_outputs"]) == ""
    assert LOST not in str(failed.value)
    assert small("double(given + 1)").output == 42
    assert small("final_answer(7)").is_final_answer


def test_forged_line_number_is_ignored(small: NativeExecutor) -> None:
    with pytest.raises(CodeError, match="due to: ValueError"):
        small(
            "def f():\n    pass\nname = f.__code__.co_filename\n"
            "raise ValueError(f'\\n  File \"{name}\", line ' + '9' * 5000 + ', in <module>\\n')"
        )


def test_too_much_memory(small: NativeExecutor) -> None:
    with pytest.raises(CodeError) as stopped:
        small("blocks = []\nwhile True: blocks.append(bytearray(1 << 20))")
    # Either a `MemoryError` in the code or a kill. Both are reported, and both leave a usable session.
    assert "MemoryError" in str(stopped.value) or "limits.memory" in str(stopped.value)
    assert small("double(given)").output == 40


def test_too_much_output(small: NativeExecutor) -> None:
    with pytest.raises(CodeError, match=r"limits\.output"):
        small("while True: print('x' * 1000)")
    assert small("double(given)").output == 40


@pytest.fixture
def idle():  # type: ignore[no-untyped-def]
    """An executor whose session ends after a short idle time."""
    executor = NativeExecutor([], policy={"session": {"idle": "2s"}})
    executor.send_variables({"given": 20})
    executor.send_tools({"double": double})
    yield executor
    executor.cleanup()


def test_loss_between_steps_is_reported_with_the_next_step(idle: NativeExecutor) -> None:
    idle("own = 1")
    time.sleep(2.1)
    done = idle("print('hello')\ndouble(given)")
    assert done.output == 40
    assert done.logs.startswith("Note: the Python session had ended")
    assert done.logs.endswith("\nhello\n")
    assert idle("given").logs == ""


def test_loss_between_steps_is_not_blamed_on_failing_code(idle: NativeExecutor) -> None:
    idle("own = 1")
    time.sleep(2.1)
    with pytest.raises(CodeError) as failed:
        idle("own")
    note, _, said = str(failed.value).partition("\n")
    assert note.startswith("Note: the Python session had ended, and this code ran in a fresh one")
    assert said == "Code execution failed at line 'own' due to: NameError: name 'own' is not defined"


def test_loss_found_by_the_next_run_is_reported_in_its_first_step(idle: NativeExecutor) -> None:
    time.sleep(2.1)
    idle.send_variables({"given": 1})
    idle.send_tools({"double": double})
    assert idle("double(given)").logs.startswith("Note: the Python session had ended")


def test_code_whose_sandbox_was_closed_is_not_run_again(small: NativeExecutor) -> None:
    called = []
    sandbox = small.sandbox

    def close() -> None:
        called.append(1)
        sandbox.close()

    small.send_tools({"close": close, "double": double})
    with pytest.raises(CodeError, match="the sandbox was closed") as stopped:
        small("close()\nwhile True: pass")
    assert LOST in str(stopped.value)
    assert called == [1]
    assert small("double(given)").output == 40


def test_answer_counts_even_if_the_code_then_fails(small: NativeExecutor) -> None:
    done = small("import os\ntry:\n    final_answer(5)\nfinally:\n    os.kill(os.getpid(), 9)")
    assert (done.output, done.is_final_answer) == (5, True)
    assert small("print(1)").logs.startswith("Note: the Python session had ended")


def test_the_budget_of_tool_calls_outlives_a_session() -> None:
    executor = NativeExecutor(["os"], tool_budget=2)
    executor.send_tools({"double": double})
    for _ in range(2):
        with pytest.raises(CodeError, match="SIGKILL"):
            executor("double(1)\nimport os\nos.kill(os.getpid(), 9)")
    with pytest.raises(CodeError, match="budget"):
        executor("double(1)")
    executor.cleanup()


def test_variables_that_end_the_session_raise_in_the_sender(small: NativeExecutor) -> None:
    with pytest.raises(Exception, match=r"memory|lost|bytes"):
        small.send_variables({"huge": b"x" * (1 << 28)})


def test_an_interrupt_of_the_host_keeps_the_session(small: NativeExecutor) -> None:
    small("own = 1")
    interrupting = threading.Timer(1, os.kill, [os.getpid(), signal.SIGINT])
    small.send_tools({"interrupt": interrupting.start})
    with pytest.raises(KeyboardInterrupt):
        small("interrupt()\nwhile True: pass")
    assert small("own").output == 1


def test_a_tool_that_ends_the_program_ends_the_program(small: NativeExecutor) -> None:
    def leave() -> NoReturn:
        raise SystemExit(3)

    small.send_tools({"leave": leave})
    small("own = 1")
    with pytest.raises(SystemExit):
        small("leave()")
    assert small("own").output == 1


def test_killed_supervisor_stops_the_code(small: NativeExecutor) -> None:
    def kill() -> None:
        for children in Path("/proc/self/task").glob("*/children"):
            for pid in children.read_text().split():
                # Not multiprocessing's own helper, which other tests started.
                if Path(f"/proc/{pid}/comm").read_text().strip() == "sandfork":
                    os.kill(int(pid), signal.SIGKILL)

    small.send_tools({"kill": kill, "double": double})
    with pytest.raises(CodeError, match="the sandbox was closed") as stopped:
        small("kill()\nwhile True: pass")
    assert LOST in str(stopped.value)
    assert small("double(given)").output == 40


def test_forked_host_process_opens_its_own_session(small: NativeExecutor) -> None:
    small("own = 1")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            done = small("double(given)")
            code = 0 if done.output == 40 and done.logs.startswith("Note: ") else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert small("own").output == 1

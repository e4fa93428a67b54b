"""Code in the executor, and the results that its caller sees."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from typing import Any

import pytest
from smolagents import FinalAnswerTool
from smolagents.local_python_executor import CodeOutput, InterpreterError, LocalPythonExecutor, PythonExecutor
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.utils import AgentExecutionError

from sandfork import Opaque, Policy, RequestError
from sandfork.smolagents import CodeError, CodeTimeout, NativeExecutor
from sandfork.smolagents._code import MAX_PARSED


def test_it_is_a_python_executor(executor: NativeExecutor) -> None:
    assert isinstance(executor, PythonExecutor)
    assert executor("1 + 1") == CodeOutput(output=2, logs="", is_final_answer=False)
    assert str(executor.state["_print_outputs"]) == ""


@pytest.mark.parametrize(
    "code",
    [
        "x = 3",
        "x = y = 3",
        "x = 1\nx += 2",
        "x: int = 3",
        "a, b = 1, 2",
        "[n * n for n in range(4)]",
        "print('x')",
        "import math",
        "def f(): return 1\nf()",
        "3 if True else 4",
        "sqrt(16) + floor(2.5)",
        "",
        "d = {'a': 1}\nd['b'] = 2",
        "del_me = 1\ndel del_me",
        "1\npass",
    ],
)
def test_the_value_is_that_of_the_local_executor(executor: NativeExecutor, code: str) -> None:
    local = LocalPythonExecutor([])
    local.send_tools({})
    assert executor(code).output == local(code).output


def test_state_is_kept_from_step_to_step(executor: NativeExecutor) -> None:
    executor("import math\nbase = 10\ndef plus(n):\n    return n + base")
    executor("class Point:\n    def __init__(self, x):\n        self.x = x\np = Point(math.floor(4.5))")
    assert executor("plus(p.x)").output == 14


def test_printed_output_is_in_the_logs(executor: NativeExecutor) -> None:
    done = executor("print('a', 'b', sep='-')\nprint('c', end='')\n7")
    assert done == CodeOutput(output=7, logs="a-b\nc", is_final_answer=False)
    assert str(executor.state["_print_outputs"]) == "a-b\nc"


def test_logs_are_cut_as_the_local_executor_cuts_them() -> None:
    code = "for n in range(2000): print(n)"
    executor = NativeExecutor([], max_print_outputs_length=100)
    local = LocalPythonExecutor([], max_print_outputs_length=100)
    local.send_tools({})
    assert executor(code).logs == local(code).logs
    executor.cleanup()


def test_stderr_is_for_the_hosts_log_only() -> None:
    class Kept(AgentLogger):
        said: list[Any] = []

        def log(self, *args: Any, level: Any = LogLevel.INFO, **kwargs: Any) -> None:
            self.said.append((level, *args))

    logger = Kept()
    executor = NativeExecutor(["sys"], logger)
    assert executor("import sys\nprint('[oops]', file=sys.stderr)").logs == ""
    assert logger.said == [(LogLevel.DEBUG, "stderr of the code:\n[oops]\n")]
    executor.cleanup()


def test_variables_are_set(executor: NativeExecutor) -> None:
    executor.send_variables({"x": [1, 2], "image.png": "no name for code", "class": 1})
    executor.send_variables({"y": 3})
    assert executor("sum(x) + y").output == 6
    executor.send_variables({"x": [5]})
    assert executor("sum(x) + y").output == 8


def test_untransferable_value_is_printed(executor: NativeExecutor) -> None:
    output = executor("class Thing:\n    def __repr__(self): return 'a thing'\nThing()").output
    assert isinstance(output, Opaque)
    assert str(output) == "a thing"


def test_a_value_that_cannot_be_shown_is_a_summary(executor: NativeExecutor) -> None:
    output = executor("[10 ** 5000]").output
    assert isinstance(output, Opaque)
    # An agent calls `str()` on the output, which would raise for the value itself.
    assert str(output) == "<list with an integer of more than 4300 digits>"


@pytest.mark.parametrize("call", ["final_answer({})", "final_answer(answer={})"])
def test_an_answer_that_cannot_be_shown_is_refused(executor: NativeExecutor, call: str) -> None:
    executor.send_tools({"final_answer": FinalAnswerTool()})
    said = "ValueError: the host shows what final_answer gets, and this is <list with an integer"
    with pytest.raises(CodeError, match=said):
        executor(call.format("[10 ** 5000]"))
    done = executor(call.format("[1] * 10"))
    assert (done.output, done.is_final_answer) == ([1] * 10, True)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1\ny = x / 0", "Code execution failed at line 'y = x / 0' due to: ZeroDivisionError: "),
        ("for n in [1]:\n    print(n)\n    n.no()", "failed at line 'n.no()' due to: AttributeError: "),
        (
            "undefined_name",
            "at line 'undefined_name' due to: NameError: name 'undefined_name' is not defined",
        ),
        ("raise KeyError", "Code execution failed at line 'raise KeyError' due to: KeyError"),
    ],
)
def test_an_error_names_its_line(executor: NativeExecutor, code: str, said: str) -> None:
    with pytest.raises(CodeError) as failed:
        executor(code)
    assert said in str(failed.value)
    assert "Traceback" not in str(failed.value)
    # Handlers for the local executor and for the remote executors both catch it.
    assert isinstance(failed.value, InterpreterError)
    assert isinstance(failed.value, AgentExecutionError)


def test_an_error_below_the_line_has_its_traceback(executor: NativeExecutor) -> None:
    executor("def half(n):\n    return n / 0")
    with pytest.raises(CodeError) as failed:
        executor("print('before')\nhalf(3)")
    message = str(failed.value)
    assert message.startswith("Code execution failed at line 'half(3)' due to: ZeroDivisionError: ")
    assert "in half\n    return n / 0" in message
    assert "/sandfork" not in message
    assert "site-packages" not in message
    assert str(executor.state["_print_outputs"]) == "before\n"


def test_an_error_is_that_of_the_last_exception(executor: NativeExecutor) -> None:
    with pytest.raises(CodeError) as failed:
        executor("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('no') from e")
    first = str(failed.value).splitlines()[0]
    assert first == ("Code execution failed at line 'raise ValueError('no') from e' due to: ValueError: no")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no exception groups")
def test_exception_group_error_lists_its_members() -> None:
    executor = NativeExecutor(imports="installed")
    executor("import asyncio\nasync def f():\n    raise ValueError('deep cause')")
    with pytest.raises(CodeError) as failed:
        executor("x = 1\nasync with asyncio.TaskGroup() as group:\n    group.create_task(f())")
    message = str(failed.value)
    assert message.startswith("Code execution failed at line '")
    assert "due to: ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n" in message
    assert "line 3, in f\n" in message
    assert "ValueError: deep cause" in message
    with pytest.raises(CodeError, match="KeyError: 'inner'"):
        executor("raise ExceptionGroup('outer', [KeyError('inner')])")
    executor.cleanup()


def test_caught_refusal_is_not_reported_for_a_later_error() -> None:
    executor = NativeExecutor(imports="installed")
    with pytest.raises(CodeError) as failed:
        executor("import socket\ntry:\n    socket.socket()\nexcept OSError:\n    pass\n1 / 0")
    assert "refused" not in str(failed.value)
    with pytest.raises(CodeError, match=r"\[Errno 1\].*\nThe sandbox refused: socket by seccomp"):
        executor("import socket\nsocket.socket()")
    executor.cleanup()


def test_message_of_a_notebook_line_reaches_the_model(executor: NativeExecutor) -> None:
    for line, said in (("%history", "%history is a command of IPython"), ("!cat nope", "exit code 1")):
        assert said in executor(line).logs


def test_a_syntax_error_quotes_its_line(executor: NativeExecutor) -> None:
    with pytest.raises(CodeError) as failed:
        executor("a = 2\n    b = 3\n")
    message = str(failed.value)
    assert message.startswith("Code parsing failed on line 2 due to: IndentationError: ")
    assert "    b = 3" in message


def test_a_syntax_error_of_code_within_the_code_is_an_error(executor: NativeExecutor) -> None:
    with pytest.raises(CodeError, match=r"failed at line 'compile.*' due to: SyntaxError"):
        executor("compile('a b', 'x', 'exec')")


def test_long_tracebacks_are_cut(executor: NativeExecutor) -> None:
    with pytest.raises(CodeError) as failed:
        executor("def f(n):\n    if n: return g(n - 1)\n    1 / 0\ndef g(n):\n    return f(n)\nf(200)")
    assert len(str(failed.value)) < 6000
    assert str(failed.value).rstrip().endswith("division by zero")


@pytest.mark.parametrize(
    "code", ["final_answer = 3", "def final_answer(x): pass", "import math as final_answer"]
)
def test_a_tool_cannot_be_erased(executor: NativeExecutor, code: str) -> None:
    executor.send_tools({"final_answer": FinalAnswerTool()})
    with pytest.raises(CodeError, match="Cannot assign to name 'final_answer'"):
        executor(f"ran = 1\n{code}")
    with pytest.raises(CodeError, match="'ran' is not defined"):
        executor("ran")
    assert executor("final_answer(5)").output == 5


@pytest.mark.parametrize(
    "code",
    ["final_answer = 3\n!true", "exec('final_answer = 3')", "final_answer = 3\n#" + "x" * MAX_PARSED],
    ids=["notebook", "exec", "long"],
)
def test_erased_tool_is_restored_in_the_next_step(executor: NativeExecutor, code: str) -> None:
    executor.send_tools({"final_answer": FinalAnswerTool()})
    executor(code)
    assert executor("final_answer(5)").output == 5


def test_exit_ends_the_step_only(executor: NativeExecutor) -> None:
    executor("kept = 1")
    with pytest.raises(CodeError, match=r"called exit \(3\).*earlier steps defined is kept.*final_answer"):
        executor("raise SystemExit(3)")
    assert executor("kept").output == 1


def test_a_surrogate_is_an_error_of_the_code(executor: NativeExecutor) -> None:
    with pytest.raises(CodeError, match="surrogate"):
        executor("'\ud800'")


def test_invalid_policy_raises_in_the_constructor() -> None:
    with pytest.raises(ValueError, match=r"limits\.memory"):
        NativeExecutor([], policy={"limits": {"memory": "a lot"}})
    with pytest.raises(TypeError, match="no_such_option"):
        NativeExecutor([], no_such_option=1)


def test_timeout_keeps_the_session_state() -> None:
    quick = NativeExecutor([], timeout_seconds=0.9)
    quick("kept = 1")
    with pytest.raises(CodeTimeout) as stopped:
        quick("print('before', flush=True)\nwhile True: pass")
    told = "Code execution exceeded the maximum execution time of 0.9 seconds: "
    assert str(stopped.value).startswith(told)
    assert str(stopped.value).endswith("what earlier steps defined is kept.")
    assert str(quick.state["_print_outputs"]) == "before\n"
    assert quick("kept").output == 1
    quick.cleanup()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_have_separate_sessions(executor: NativeExecutor, copied: Any) -> None:
    executor.send_variables({"given": 1})
    executor("own = 2")
    twin = copied(executor)
    assert twin("given").output == 1
    with pytest.raises(CodeError, match="'own' is not defined"):
        twin("own")
    twin("own = 3")
    assert executor("own").output == 2
    twin.cleanup()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_executor_copy_has_no_logger(copied: Any) -> None:
    executor = NativeExecutor([], AgentLogger())
    twin = copied(executor)
    assert twin("1").output == 1
    assert twin.logger is None
    branch = executor.branch()
    assert branch.logger is executor.logger
    for ended in (executor, twin, branch):
        ended.cleanup()


@pytest.mark.parametrize(
    "wrong",
    [{"max_print_outputs_length": "x"}, {"max_print_outputs_length": -5}, {"additional_functions": [len]}],
)
def test_invalid_argument_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(wrong))):
        NativeExecutor([], **wrong)


def test_cleanup_ends_the_session(executor: NativeExecutor) -> None:
    executor("x = 1")
    executor.cleanup()
    executor.cleanup()
    with pytest.raises(CodeError, match="'x' is not defined"):
        executor("x")
    assert executor("2").logs == ""


def test_cleanup_waits_for_no_step(executor: NativeExecutor) -> None:
    executor.send_tools({"leave": executor.cleanup})
    with pytest.raises(CodeError, match="the sandbox was closed"):
        executor("leave()\nwhile True: pass")
    assert executor("2").output == 2


def test_late_final_answer_does_not_count_for_a_later_step() -> None:
    release, late = threading.Event(), []

    def final_answer(answer: str) -> str:
        if answer == "late":
            late.append(threading.current_thread())
            release.wait(60)
        return answer

    executor = NativeExecutor([], tool_timeout=3)
    tools = {"release": release.set, "is_waiting": lambda: late[0].is_alive()}
    executor.send_tools({"final_answer": final_answer, **tools})
    with pytest.raises(CodeError, match="TimeoutError"):
        executor("final_answer('late')")
    done = executor("release()\nwhile is_waiting(): pass\n'own'")
    assert (done.output, done.is_final_answer) == ("own", False)
    assert executor("final_answer('own')").output == "own"
    executor.cleanup()


ESCAPES = "print('\\x1b]0;title\\x07\\x9b31m 1\\t2\\r\\n')"


@pytest.mark.parametrize("end", ["", "; raise ValueError('\\x1b[31m')", "; exit('\\x1b')"])
def test_code_output_is_harmless_to_a_terminal(executor: NativeExecutor, end: str) -> None:
    said = ""
    try:
        said += executor(ESCAPES + end).logs
    except CodeError as error:
        said += str(error) + error.message
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in said)
    assert str(executor.state["_print_outputs"]) == "\\x1b]0;title\\x07\\x9b31m 1\t2\n\n"


def test_executor_exposes_its_sandbox(executor: NativeExecutor) -> None:
    executor.sandbox.files.write("in.txt", "from the host")
    assert executor("open('in.txt').read()").output == "from the host"
    executor("x = 41")
    assert executor.sandbox.get("x") == 41


def test_a_policy_reaches_the_sandbox() -> None:
    executor = NativeExecutor(["os"], policy=Policy(env={"set": {"GREETING": "hello"}}))
    assert executor("import os\nos.environ['GREETING']").output == "hello"
    executor.cleanup()

"""Tools and managed agents: they run on the host, called by name."""

from __future__ import annotations

import contextvars
import os
import threading
from typing import Any

import pytest
from smolagents import FinalAnswerTool, Tool, tool

from sandfork import Opaque
from sandfork.smolagents import CodeError, NativeExecutor


class Vault(Tool):
    name = "vault"
    description = "Looks a thing up."
    inputs = {
        "key": {"type": "string", "description": "What to look up."},
        "times": {"type": "integer", "description": "How often.", "nullable": True},
    }
    output_type = "any"

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__()
        self.content = content
        self.called: list[tuple[str, int | None]] = []

    def forward(self, key: str, times: int | None = None) -> Any:
        self.called.append((key, times))
        return self.content[key]


def with_tools(executor: NativeExecutor, *tools: Any) -> NativeExecutor:
    executor.send_tools({each.name: each for each in (*tools, FinalAnswerTool())})
    return executor


def test_a_tool_runs_on_the_host(executor: NativeExecutor) -> None:
    vault = Vault({"pid": os.getpid()})
    with_tools(executor, vault)
    assert executor("vault('pid')").output == os.getpid()
    assert executor("vault(key='pid', times=2)").output == os.getpid()
    assert executor("vault({'key': 'pid'})").output == os.getpid()
    assert vault.called == [("pid", None), ("pid", 2), ("pid", None)]


def test_normalized_tool_name_is_protected(executor: NativeExecutor) -> None:
    executor.send_tools({"\ufb01": lambda: 1})
    assert executor("\ufb01() + fi()").output == 2
    with pytest.raises(CodeError, match="Cannot assign to name 'fi'"):
        executor("\ufb01 = 5")
    executor.send_tools({})
    with pytest.raises(CodeError, match="NameError"):
        executor("\ufb01")


def test_tool_exception_is_raised_in_the_code(executor: NativeExecutor) -> None:
    with_tools(executor, Vault({}))
    assert executor("try:\n    vault('x')\nexcept KeyError as e:\n    got = str(e)").output is None
    assert executor("got").output == "'x'"
    with pytest.raises(CodeError, match="failed at line 'vault\\('y'\\)' due to: KeyError: 'y'"):
        executor("vault('y')")


def test_wrong_arguments_show_the_tools_own_error(executor: NativeExecutor) -> None:
    with_tools(executor, Vault({}))
    with pytest.raises(CodeError, match=r"TypeError: .*unexpected keyword argument 'kee'"):
        executor("vault(kee='x')")


def test_code_sees_parameters_but_no_default_values() -> None:
    executor = NativeExecutor([])

    def fetch(url: str, token: str = "s3cret") -> str:
        """Fetches."""
        return url

    executor.send_tools({"vault": Vault({}), "fetch": fetch})
    seen = executor("vault.__doc__, fetch.__doc__").output
    assert seen[0].startswith("vault(key")
    assert seen[0].endswith("Looks a thing up.")
    assert seen[1].startswith("fetch(url")
    assert seen[1].endswith("Fetches.")
    assert "s3cret" not in repr(seen)
    executor.cleanup()


def test_untransferable_result_is_its_repr(executor: NativeExecutor) -> None:
    class Client:
        def __repr__(self) -> str:
            return "<client>"

    vault = Vault({"client": Client(), "list": [1, Client()]})
    with_tools(executor, vault)
    assert executor("print(vault('client'))").logs == "<client>\n"
    output = executor("vault('list')").output
    assert output[0] == 1
    assert isinstance(output[1], Opaque)


def test_plain_functions_are_tools_too() -> None:
    executor = NativeExecutor([], additional_functions={"host_pid": os.getpid})
    executor.send_tools({})
    assert executor("host_pid()").output == os.getpid()
    assert set(executor.static_tools) == {"host_pid"}
    executor.cleanup()


def test_removed_tool_is_undefined(executor: NativeExecutor) -> None:
    vault = Vault({"x": 1})
    executor.send_tools({"vault": vault})
    executor("alias = vault")
    executor.send_tools({"other": lambda: 2})
    with pytest.raises(CodeError, match="NameError: name 'vault' is not defined"):
        executor("vault('x')")
    with pytest.raises(CodeError, match="no tool 'vault' any more"):
        executor("alias('x')")
    assert not vault.called
    executor.send_tools({"vault": vault})
    assert executor("vault('x')").output == 1


def test_tool_replaces_one_of_the_same_name(executor: NativeExecutor) -> None:
    executor.send_tools({"vault": Vault({"x": 1})})
    assert executor("vault('x')").output == 1
    executor.send_tools({"vault": Vault({"x": 2})})
    assert executor("vault('x')").output == 2


def test_tools_see_the_callers_context(executor: NativeExecutor) -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request")
    executor.send_tools({"who": lambda: request.get()})
    request.set("of this run")
    assert executor("who()").output == "of this run"


@pytest.mark.parametrize(
    "code",
    [
        "final_answer(42)",
        "final_answer(answer=42)",
        "def deep():\n    for n in range(3):\n        n < 2 or final_answer(42)\ndeep()\nprint('not here')",
        "try:\n    final_answer(42)\nexcept Exception:\n    print('not here')",
        "try:\n    final_answer(42)\nexcept:\n    pass",
        "while True:\n    try:\n        final_answer(42)\n    except BaseException:\n        continue",
        "[final_answer(42) for _ in range(3)]",
        "print('not here') if final_answer(42) else 0",
        "import threading\nt = threading.Thread(target=final_answer, args=(42,))\nt.start()\nt.join()",
        "import threading, time\nthreading.Thread(target=final_answer, args=[42]).start()\ntime.sleep(60)",
        "import asyncio\nasync def main():\n    final_answer(42)\nasyncio.run(main())",
    ],
)
def test_a_final_answer_ends_the_code(code: str) -> None:
    executor = with_tools(NativeExecutor(["threading", "time", "asyncio"], timeout_seconds=4))
    done = executor(code)
    assert (done.output, done.is_final_answer) == (42, True)
    assert "not here" not in done.logs
    assert executor("1").is_final_answer is False
    executor.cleanup()


def test_user_defined_final_answer_is_used(executor: NativeExecutor) -> None:
    class Signed(FinalAnswerTool):
        inputs = {
            "first": {"type": "string", "description": "The first half."},
            "second": {"type": "string", "description": "The second half."},
        }

        def forward(self, first: str, second: str) -> str:  # type: ignore[override]
            return f"{first} {second}, signed"

    executor.send_tools({"final_answer": Signed()})
    done = executor("final_answer(second='b', first='a')")
    assert (done.output, done.is_final_answer) == ("a b, signed", True)
    with pytest.raises(CodeError, match="missing 1 required positional argument"):
        executor("final_answer('a')")


def test_answer_is_the_tools_own_object(executor: NativeExecutor) -> None:
    made = threading.Lock()

    class Maker(FinalAnswerTool):
        def forward(self, answer: Any) -> Any:
            return made

    executor.send_tools({"final_answer": Maker()})
    assert executor("final_answer(1)").output is made


def test_answer_requires_the_tool(executor: NativeExecutor) -> None:
    executor.send_tools({})
    with pytest.raises(CodeError, match="'final_answer' is not defined"):
        executor("final_answer(1)")


@tool
def nap(seconds: float) -> str:
    """Sleeps on the host.

    Args:
        seconds: How long.
    """
    threading.Event().wait(seconds)
    return "rested"


def test_tool_time_does_not_count_for_code() -> None:
    executor = NativeExecutor([], timeout_seconds=3)
    executor.send_tools({"nap": nap})
    assert executor("nap(3.1)").output == "rested"
    executor.cleanup()


def test_options_of_the_sandbox() -> None:
    executor = NativeExecutor([], approve=lambda name, args, kwargs: "not today", tool_timeout=60)
    executor.send_tools({"nap": nap})
    with pytest.raises(CodeError, match="not today"):
        executor("nap(0)")
    executor.cleanup()

"""Host tools that real guest code calls."""

from __future__ import annotations

import contextvars
import os
import pathlib
import threading
import time
from typing import Any

import pytest

from sandfork import Opaque, RequestError, Sandbox, Tool

from ..support import processes


def test_tools_are_called_by_name_and_from_their_module() -> None:
    def join(*parts: str, sep: str = "-") -> str:
        "Joins."
        return sep.join(parts)

    with Sandbox(tools=[join]) as sbx:
        assert sbx.run("join('a', 'b', sep='/')").value == "a/b"
        assert sbx.run("import sandfork_host; sandfork_host.join('a', 'b')").value == "a-b"
        assert "Joins." in sbx.run("join.__doc__").value


def test_names_are_normalized_like_identifiers() -> None:
    # Python's compiler makes U+03BC of U+00B5, and "fi" of the ligature.
    with Sandbox(tools={"\ufb01": lambda: 1}, variables={"\u00b5": 2}) as sbx:
        assert sbx.run("\ufb01() + fi() + \u00b5").value == 4
        sbx.set_variables({"\u00b5": 3})
        assert sbx.run("\u00b5", variables={"\u210c": 5}).value == sbx.get("\u00b5") == 3
        assert sbx.get("H") == 5
        sbx.add_tools([Tool("\uff47", lambda: 7)])
        assert sbx.run("g()").value == 7
        for name in ("\uff44\uff45\uff46", "\u2075"):
            with pytest.raises(RequestError, match="cannot be the name of a variable"):
                sbx.set_variables({name: 1})
        with pytest.raises(RequestError, match="two tools are called 'fi'"):
            sbx.add_tools({"\ufb01": print, "fi": print})


def test_output_before_a_call_or_display_comes_first() -> None:
    seen: list[Any] = []
    with Sandbox(tools={"tool": lambda: seen.append("tool")}) as sbx:
        sbx.run(
            "import sys\n"
            "print('before', end='')\ntool()\nprint('after')\nprint('error', file=sys.stderr)\ndisplay(1)",
            on_stdout=seen.append,
            on_stderr=seen.append,
            on_result=lambda result: seen.append(result.text),
        )
    assert seen == ["before", "tool", "after\n", "error\n", "1"]


def test_exceptions_are_transferred_both_ways() -> None:
    def fail(kind: str) -> None:
        if kind == "value":
            raise ValueError("no such tenant")
        raise type("Odd", (Exception,), {})("odd")

    with Sandbox(tools=[fail]) as sbx:
        code = "try:\n    fail('value')\nexcept ValueError as error:\n    caught = str(error)\ncaught"
        assert sbx.run(code).value == "no such tenant"
        error = sbx.run("fail('other')").error
        assert error is not None
        assert "odd" in error.value
        assert "tests" not in error.traceback


def test_secrets_of_a_tool_stay_on_the_host() -> None:
    key = "sk-very-secret-key"

    def ask(prompt: str, *, api_key: str = key) -> str:
        return f"{len(key)} {prompt}"

    search = """
import gc, sys, os
needle = "sk-very-" + "secret-key"
found = [o for o in gc.get_objects() if isinstance(o, (str, dict, list)) and needle in repr(o)]
maps = [line.split() for line in open("/proc/self/maps")]
hits = 0
with open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        if line[1].startswith("rw") and line[-1] not in ("[vvar]", "[vsyscall]"):
            start, end = (int(part, 16) for part in line[0].split("-"))
            try:
                memory.seek(start)
                hits += memory.read(end - start).count(b"sk-very-" b"secret")
            except OSError:
                pass
[ask("hi"), len([o for o in found if o is not needle]), needle in repr(os.environ), hits]
"""
    with Sandbox(tools=[ask], timeout=60) as sbx:
        answer, _, in_environ, _ = sbx.run(search).value
        # The guest assembles the needle, so that the guest's code does not contain it.
        blind = sbx.run(search.replace('"sk-very-" + "secret-key"', '"".join(map(chr, [0]))'))
        assert blind.ok
    assert answer == "18 hi"
    assert in_environ is False


def test_tools_are_called_from_guest_threads() -> None:
    seen = set()

    def double(x: int) -> int:
        seen.add(threading.get_ident())
        return 2 * x

    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    results = list(pool.map(double, range(100)))
results
"""
    with Sandbox(tools=[double]) as sbx:
        assert sbx.run(code).value == [2 * x for x in range(100)]
    assert seen == {threading.get_ident()}


def test_the_time_of_a_tool_does_not_count() -> None:
    with Sandbox(tools={"slow": lambda: time.sleep(3.1)}, timeout=3) as sbx:
        assert sbx.run("slow(); 1").value == 1
    with Sandbox(tools={"slow": lambda: time.sleep(0.6)}, count_tool_time=True) as sbx:
        assert sbx.run("slow(); 1", timeout=0.3).status == "timeout"
        assert sbx.run("1").value == 1


CALLED_ALWAYS = """
import threading
def loop():
    while True: call()
threads = [threading.Thread(target=loop, daemon=True) for _ in range(8)]
for thread in threads: thread.start()
threads[0].join()
"""


@pytest.mark.parametrize("options", [{}, {"tool_time": 0.5}])
def test_a_guest_that_always_has_a_call_open_is_ended(options: dict[str, Any]) -> None:
    with Sandbox(tools={"call": lambda: time.sleep(0.002)}, timeout=0.2, **options) as sbx:
        assert sbx.run(CALLED_ALWAYS).status == "timeout"


def test_a_tool_that_blocks_is_a_timeout_in_the_guest() -> None:
    release = threading.Event()
    with Sandbox(tools=[Tool("hang", lambda: release.wait(60), timeout=0.1)]) as sbx:
        error = sbx.run("hang()").error
        assert error is not None
        assert (error.name, error.value) == ("TimeoutError", "the host's function took more than 0.1 s")
        assert sbx.run("1").value == 1
    release.set()


def test_untransferable_tool_result_is_opaque() -> None:
    with Sandbox(tools={"client": threading.Lock}) as sbx:
        execution = sbx.run("c = client()\nprint(type(c).__name__, 'lock' in repr(c))\nc")
        assert execution.logs.stdout == ["Opaque True\n"]
        assert isinstance(execution.value, Opaque)


def test_budgets_and_approval() -> None:
    def approve(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[0] < 3 or "too much"

    with Sandbox(tools={"f": lambda x: x}, approve=approve, tool_budget=3) as sbx:
        assert sbx.run("f(1)").value == 1
        denied = sbx.run("f(5)").error
        assert denied is not None
        assert (denied.name, denied.value) == ("PermissionError", "the call of f was denied: too much")
        assert sbx.run("f(2)").value == 2
        spent = sbx.run("f(1)").error
        assert spent is not None
        assert "the budget of 3 tool calls is spent" in spent.value


def test_spent_budget_allows_one_answer_per_cell() -> None:
    answers: list[int] = []
    tools = [Tool("f", lambda: 1), Tool("answer", lambda x: answers.append(x) or x, ends_cell=True)]
    with Sandbox(tools=tools, tool_budget=1) as sbx:
        assert sbx.run("f()").value == 1
        assert sbx.run("answer(2)").value == 2
        assert sbx.run("answer(3)").value == 3
        # Only the first answer of a cell is free; the others count.
        call = "try:\n    answer({})\nexcept BaseException as error:\n    caught = type(error).__name__"
        sbx.run("\n".join(call.format(n) for n in (4, 5)))
        assert answers == [2, 3, 4]
        error = sbx.run("f()").error
        assert error is not None
        assert "the budget of 1 tool calls is spent" in error.value


def test_a_guest_that_forges_calls_harms_only_itself() -> None:
    called = []
    flood = """
import threading
def call():
    while True:
        try:
            f(1)
        except BaseException:
            pass
for _ in range(20):
    threading.Thread(target=call, daemon=True).start()
import time
time.sleep(0.5)
"""
    with Sandbox(tools={"f": called.append}, tool_budget=50, on_death="restart") as sbx:
        assert sbx.run(flood).status in ("ok", "timeout", "cpu-limit")
        assert len(called) == 50
        sbx.restart()
        assert sbx.run("1").value == 1


def test_reprs_that_raise_or_loop_are_the_guests_trouble(sbx: Sandbox) -> None:
    raising = sbx.run("class R:\n    def __repr__(self): raise RuntimeError('no')\nR()")
    assert raising.ok
    assert "repr raises" in raising.value.repr
    looping = sbx.run("class L:\n    def __repr__(self):\n        while True: pass\nL()", timeout=0.3)
    assert looping.status == "timeout"
    cyclic = sbx.run("x = []\nx.append(x)\nx") if looping.session == "live" else None
    assert cyclic is None or cyclic.ok


def test_context_variables_reach_tools_of_a_thread() -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    with Sandbox(tools={"get": variable.get}, tool_timeout=5) as sbx:
        assert sbx.run("get()").value == "set"


@pytest.mark.parametrize("size", [1 << 10, 1 << 17, 20 << 20])
def test_bytes_of_any_size_go_through_a_tool(size: int) -> None:
    with Sandbox("data-science", tools={"same": lambda x: x}) as sbx:
        assert sbx.run(f"same(b'x' * {size}) == b'x' * {size}").value is True


def test_calls_that_wait_when_their_guest_ends_are_not_made(tmp_path: pathlib.Path) -> None:
    sizes: list[int] = []
    callers = 16
    called = tmp_path / "called"
    os.chmod(tmp_path, 0o755)

    def read(text: str) -> None:
        """Returns after the guest has ended and the supervisor has had time to notice."""
        sizes.append(len(text))
        called.touch()
        processes_now = processes.descendants(os.getpid())
        guests = [process for process in processes_now if processes.threads(process) == callers + 1]
        until = time.monotonic() + 60
        while any(map(processes.is_alive, guests)) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.5)

    code = f"""
import os, threading, time
ready = threading.Barrier({callers} + 1)
def call():
    ready.wait()
    read("x" * 200_000)
for _ in range({callers}):
    threading.Thread(target=call, daemon=True).start()
ready.wait()
while not os.path.exists({str(called)!r}):
    time.sleep(0.01)
time.sleep(1)
os._exit(3)
"""
    with Sandbox({"filesystem": {"read": [tmp_path]}}, tools=[read]) as sbx:
        assert sbx.run(code).status == "exit"
    # More than one call arrives only if the supervisor was delayed.
    assert 0 < len(sizes) < callers

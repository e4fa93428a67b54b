"""Host tools: their declarations, their limits, and where they run."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import sqlite3
import threading
import time
from typing import Any

import pytest

import sandfork
from sandfork import Opaque, Sandbox, Tool
from sandfork._tools import describe

from .support.fake import FakeSupervisor, ends_when_interrupted


def told(fake: FakeSupervisor) -> dict[str, Any]:
    """The only declaration that was sent."""
    (tools,) = [heard for heard in fake.session.heard if heard["kind"] == "tools"]
    (declaration,) = tools["tools"]
    return declaration


def failure(sbx: Sandbox, code: str) -> tuple[str, str]:
    """The error that guest code gets instead of a value."""
    error = sbx.run(code).error
    assert error is not None
    return error.name, error.value


def test_a_tool_is_called_with_values_both_ways(fake: FakeSupervisor) -> None:
    def join(*parts: str, sep: str = "-") -> dict[str, Any]:
        return {"joined": sep.join(parts), "bytes": b"\0" * 100_000, "set": {1, 2}}

    with Sandbox(tools={"join": join}) as sbx:
        value = sbx.run("join('a', 'b', sep='/')").value
    assert value == {"joined": "a/b", "bytes": b"\0" * 100_000, "set": {1, 2}}


def test_guest_receives_name_signature_and_doc(fake: FakeSupervisor) -> None:
    def search(query: str, *, key: str = "sk-secret", limit: int = 3) -> list[str]:
        """Searches.

        Well.
        """
        return []

    with Sandbox(tools=[search]):
        declaration = told(fake)
    assert declaration == {
        "name": "search",
        "doc": "Searches.\n\nWell.",
        "signature": "(query: str, *, key: str = ..., limit: int = ...) -> list[str]",
        "ends_cell": False,
    }


def test_tool_can_set_its_doc_and_signature(fake: FakeSupervisor) -> None:
    tool = Tool("final_answer", lambda answer: answer, ends_cell=True, doc="Ends.", signature="(answer)")
    with Sandbox(tools=[tool]):
        declaration = told(fake)
    expected = {"name": "final_answer", "doc": "Ends.", "signature": "(answer)", "ends_cell": True}
    assert declaration == expected
    assert repr(tool) == "Tool('final_answer', (answer))"


def test_a_function_without_a_signature_is_a_tool(fake: FakeSupervisor) -> None:
    class Odd:
        __signature__ = "nonsense"

        def __call__(self) -> int:
            return 5

    with Sandbox(tools={"odd": Odd()}) as sbx:
        assert told(fake)["signature"] == ""
        assert sbx.run("odd()").value == 5


def test_exception_is_sent_as_type_and_message(fake: FakeSupervisor) -> None:
    def fail() -> None:
        secret = "local"  # noqa: F841
        try:
            raise KeyError("cause")
        except KeyError as error:
            raise ValueError("no such tenant: 7") from error

    with Sandbox(tools=[fail]) as sbx:
        assert failure(sbx, "fail()") == ("ValueError", "no such tenant: 7")
        assert sbx.run("1").value == 1


def test_exception_is_sent_with_its_builtin_base_class() -> None:
    class NoPage(ConnectionError):
        pass

    named = {"name": "NoPage", "message": "none", "base": "ConnectionError"}
    assert describe(NoPage("none")) == named
    assert describe(ConnectionError("none")) == {"name": "ConnectionError", "message": "none"}


def test_host_paths_are_not_sent(fake: FakeSupervisor) -> None:
    def missing() -> None:
        open("/etc/no-such-file-here")  # noqa: SIM115

    def spoken() -> None:
        raise RuntimeError(f"see {__file__}, {os.getcwd()}/x, /no/such: not /a of https://host/etc/x or a/b")

    with Sandbox(tools=[missing, spoken]) as sbx:
        assert failure(sbx, "missing()") == ("FileNotFoundError", "[Errno 2] No such file or directory")
        name, message = failure(sbx, "spoken()")
    assert name == "RuntimeError"
    # The guest does not learn whether the host has a path.
    assert message == "see <path>, <path>, <path>: not /a of https://host/etc/x or a/b"


def test_unusual_exceptions_are_transferred(fake: FakeSupervisor) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise LookupError

    def odd() -> None:
        raise Odd

    def stop() -> None:
        raise StopIteration

    def long() -> None:
        raise ValueError("x" * 100_000 + "\ud800")

    with Sandbox(tools=[odd, stop, long]) as sbx:
        assert failure(sbx, "odd()") == ("Odd", "<LookupError while reading the message>")
        # As in a generator, because a `StopIteration` would end the loop of a caller that iterates.
        assert failure(sbx, "stop()") == ("RuntimeError", "generator raised StopIteration")
        name, message = failure(sbx, "long()")
        assert name == "ValueError"
        assert len(message) < 40_000
        assert message.endswith("\\ud800")


def test_untransferable_value_is_opaque(fake: FakeSupervisor) -> None:
    class Client:
        def __repr__(self) -> str:
            return "<client>"

    with Sandbox(tools={"client": Client}) as sbx:
        value = sbx.run("[client(), 1]").value
    assert isinstance(value[0], Opaque)
    assert (value[0].repr, value[1]) == ("<client>", 1)


def test_a_tool_that_is_missing_is_a_name_error(fake: FakeSupervisor) -> None:
    def forge(session, cell):
        with pytest.raises(Exception, match="name 'nothing' is not defined") as caught:
            session.call("nothing")
        session.outcome(cell, value=caught.value.name)

    fake.on("forge", forge)
    with Sandbox(tools={"own": lambda: 1}) as sbx:
        assert sbx.run("forge").value == "NameError"


def test_malformed_arguments_are_an_error_of_the_guest(fake: FakeSupervisor) -> None:
    def forge(session, cell):
        session.wire.send({"kind": "call", "id": 1, "call": 9, "tool": "own", "args": [{"type": "x"}]})
        session.outcome(cell, value=session.returns.get(timeout=60).header["error"]["name"])

    fake.on("forge", forge)
    called = []
    with Sandbox(tools={"own": called.append}) as sbx:
        assert sbx.run("forge").value == "ValueError"
    assert called == []


def test_tools_can_be_added_and_replaced(fake: FakeSupervisor) -> None:
    with Sandbox(tools={"f": lambda: "old"}) as sbx:
        sbx.add_tools([Tool("f", lambda: "new"), Tool("g", lambda: "g")])
        assert sbx.run("f() + g()").value == "newg"
        sbx.restart()
        assert sbx.run("f() + g()").value == "newg"


def test_tools_run_in_the_calling_thread(fake: FakeSupervisor) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("create table t (x)")
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    seen = []

    def count() -> int:
        seen.append((threading.get_ident(), variable.get()))
        return database.execute("select count(*) from t").fetchone()[0]

    with Sandbox(tools=[count]) as sbx:
        assert sbx.run("count()").value == 0
    assert seen == [(threading.get_ident(), "set")]
    database.close()


def test_a_tool_with_a_timeout_runs_in_a_thread(fake: FakeSupervisor) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    release, returned = threading.Event(), []

    def where() -> list[Any]:
        return [threading.get_ident(), variable.get()]

    def hang() -> None:
        release.wait(600)
        returned.append(1)

    def late() -> None:
        raise TimeoutError("of its own")

    tools = [Tool("where", where), Tool("hang", hang, timeout=0.05), Tool("late", late)]
    with Sandbox(tools=tools, tool_timeout=60) as sbx:
        thread, value = sbx.run("where()").value
        assert thread != threading.get_ident()
        assert value == "set"
        # The session does not wait for the function to end.
        assert failure(sbx, "hang()") == ("TimeoutError", "the host's function took more than 0.05 s")
        assert not returned
        assert failure(sbx, "late()") == ("TimeoutError", "of its own")
    release.set()


def test_async_tools_run_in_a_loop_of_the_sandbox(fake: FakeSupervisor) -> None:
    loops = []
    begun, cancelled = threading.Event(), threading.Event()

    async def fetch(x: int) -> int:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return x + 1

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with Sandbox(tools={"fetch": fetch, "hang": Tool("hang", hang, timeout=0.05)}) as sbx:
        assert sbx.run("fetch(1) + fetch(2)").value == 5
        assert failure(sbx, "hang()")[0] == "TimeoutError"
        # The coroutine runs in the loop of another thread, which may not have started it within the timeout.
        assert not begun.is_set() or cancelled.wait(60)

        async def inside() -> Any:
            # It also works while an event loop is running.
            return sbx.run("fetch(1)").value

        assert asyncio.run(inside()) == 2
    assert loops[0] is loops[1] is loops[2]


def test_budget_applies_for_the_lifetime_of_the_sandbox(fake: FakeSupervisor) -> None:
    fake.on("die", lambda session, cell: session.outcome(cell, status="signal", session="ended"))
    with Sandbox(tools={"f": lambda: 1}, tool_budget=2, on_death="restart") as sbx:
        assert sbx.run("f()").value == 1
        sbx.run("die")
        assert sbx.run("f()").value == 1
        expected = ("PermissionError", "the budget of 2 tool calls is spent")
        assert failure(sbx, "f()") == expected


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, {"at_least": 0.0}),
        ({"tool_budget": 3}, {"at_least": 0.0}),
        ({"tool_timeout": 2}, {"at_least": 20.0}),
        ({"tool_timeout": 2, "tool_budget": 3}, {"at_least": 6.0}),
        ({"tools": [Tool("f", print, timeout=60)], "tool_timeout": 2}, {"at_least": 600.0}),
        ({"tool_timeout": 1e300, "tool_budget": 10**400}, {"at_least": 1e9}),
        ({"tool_timeout": 2, "tool_budget": 3, "tool_time": 600}, {"at_most": 600.0}),
        ({"tool_time": 1e300}, {"at_most": 1e9}),
        ({"tool_timeout": 2, "count_tool_time": True}, {"at_most": 0.0}),
    ],
)
def test_tool_time_is_sent(fake: FakeSupervisor, options, told: dict[str, float]) -> None:
    with Sandbox(**options) as sbx:
        sbx.run("1")
        assert fake.session.heard[0]["tool_time"] == told


def test_each_call_is_approved(fake: FakeSupervisor) -> None:
    asked = []

    def approve(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        asked.append((name, args, kwargs))
        if args == (4,):
            raise LookupError("no rule")
        return {1: True, 2: None, 3: False}.get(args[0], "it is night")

    with Sandbox(tools={"f": lambda x, y=0: x}, approve=approve) as sbx:
        assert sbx.run("[f(1), f(2, y=3)]").value == [1, 2]
        denied = "the call of f was denied: "
        assert failure(sbx, "f(3)") == ("PermissionError", denied + "the host does not approve")
        assert failure(sbx, "f(4)") == ("LookupError", "no rule")
        assert failure(sbx, "f(5)") == ("PermissionError", denied + "it is night")
    assert asked[1] == ("f", (2,), {"y": 3})


def test_a_tool_that_uses_its_own_session_is_refused(fake: FakeSupervisor) -> None:
    with Sandbox(tools={"again": lambda: sbx.run("1")}) as sbx:
        assert failure(sbx, "again()")[0] == "SessionBusy"
        assert sbx.run("2").value == 2


def test_calls_of_several_threads_are_served_one_by_one(fake: FakeSupervisor) -> None:
    def several(session, cell):
        for number in range(5):
            session.wire.send({"kind": "call", "id": 1, "call": number, "tool": "double", "args": [number]})
        answers = [session.returns.get(timeout=60).header for _ in range(5)]
        session.outcome(cell, value={answer["call"]: answer["value"] for answer in answers})

    fake.on("several", several)
    with Sandbox(tools={"double": lambda x: 2 * x}) as sbx:
        assert sbx.run("several").value == {0: 0, 1: 2, 2: 4, 3: 6, 4: 8}


def test_long_reply_and_long_output_do_not_deadlock(fake: FakeSupervisor) -> None:
    """Both sides write more than a socket buffers before either reads."""

    def flood(session, cell):
        session.wire.send({"kind": "call", "id": 1, "call": 1, "tool": "much", "args": []})
        for _ in range(64):
            session.output("x" * 65536)
        answer = session.returns.get(timeout=60).header["value"]
        session.outcome(cell, value=len(answer))

    fake.on("flood", flood)
    much = ["y" * 30_000] * 6
    with Sandbox(tools={"much": lambda: (time.sleep(0.1), much)[1]}) as sbx:
        execution = sbx.run("flood")
    assert execution.value == 6
    assert sum(map(len, execution.logs.stdout)) == 64 * 65536


def test_a_call_between_cells_is_refused(fake: FakeSupervisor) -> None:
    def from_a_thread(session, request):
        with pytest.raises(Exception, match="no cell is running"):
            session.call("f", bytes(100_000))
        session.outcome(request)

    fake.on("set", from_a_thread)
    called = []
    with Sandbox(tools={"f": called.append}) as sbx:
        sbx.set(x=1)
        assert sbx.run("1").value == 1
    assert called == []


def test_base_exceptions_propagate_to_the_caller(fake: FakeSupervisor) -> None:
    def leave() -> None:
        raise SystemExit(3)

    def call(session, cell):
        session.wire.send({"kind": "call", "id": 1, "call": 1, "tool": "leave", "args": []})
        ends_when_interrupted(session, cell)

    fake.on("call", call)
    with Sandbox(tools=[leave]) as sbx:
        with pytest.raises(SystemExit):
            sbx.run("call")
        assert sbx.run("1").value == 1


class Named:
    """A tool as other libraries make them."""

    name = "named"

    def __call__(self) -> int:
        return 1


def test_an_object_with_a_name_is_a_tool(fake: FakeSupervisor) -> None:
    with Sandbox(tools=[Named()]):
        assert told(fake)["name"] == "named"


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (print, "give a list of functions"),
        ("search", "give a list of functions"),
        (["search"], "'search' cannot be a tool: give a function"),
        ([functools.partial(print)], "of type partial has no name: give a dict"),
    ],
)
def test_invalid_tools_argument_is_named(tools: Any, said: str) -> None:
    with pytest.raises(sandfork.RequestError, match=said):
        Sandbox(tools=tools)


@pytest.mark.parametrize("arguments", [{"doc": 3}, {"signature": b"()"}, {"timeout": -1}])
def test_bad_tools_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(sandfork.RequestError):
        Tool("f", print, **arguments)

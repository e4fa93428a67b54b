"""Calls of host tools: approval, results, and how failures are reported to the guest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

from . import _blobs, _text, _tools, _values
from ._conversation import Actions, Invoke, decode, message
from ._exceptions import ProtocolError, RequestError
from ._frames import Decoder, Frame
from ._options import checked_function
from ._tools import Tool

# A callback that decides on a call: `True` or `None` allows it, `False` or a reason refuses it.
Approve = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]

# A callback that decides on a connection by host, port and addresses. Only `True` allows it.
OnConnect = Callable[[str, int, tuple[str, ...]], Any]

# Seconds that a decision on a connection may take.
_DECISION = 5.0
# Work budget for decoding the arguments of one call, during which the guest's clock is stopped. It is a
# quarter of the budget for a value, which is decoded when the caller reads it.
_WORK = _values.MAX_VALUES // 4
# Maximum number of functions that continue in threads after a timeout. Python cannot stop them, and each
# keeps its arguments alive.
_MAX_ABANDONED = 32


class Calls:
    """The tools of one sandbox, and the limits on their calls."""

    def __init__(
        self,
        tools: Mapping[str, Tool] = {},
        *,
        timeout: float | None = None,
        budget: int | None = None,
        approve: Approve | None = None,
        on_connect: OnConnect | None = None,
    ) -> None:
        self.tools = dict(tools)
        self._timeout = _tools.check_seconds(timeout, "tool_timeout")
        if budget is not None and (type(budget) is not int or budget < 0):
            raise RequestError(f"tool_budget is {budget!r}: give a number of calls, or None")
        self._budget = budget
        self._approve = checked_function(approve, "approve")
        self._on_connect = checked_function(on_connect, "on_connect")
        # Counted for the sandbox's lifetime: otherwise a guest could renew its budget by ending its session.
        self._made = 0
        # The names of the running functions. Between calls, only abandoned functions are left.
        self._running: dict[object, str] = {}
        # The number of the latest cell that was ended by a tool, and the encoded result of that tool.
        self._final: tuple[object, Any, list[memoryview]] | None = None
        # The latest cell for which a call of an `ends_cell` tool did not count.
        self._answered: object = None

    def renewed(self, tools: Mapping[str, Tool] | None) -> Calls:
        """Returns the same limits for another sandbox, with a separate count of calls."""
        of = self.tools if tools is None else tools
        return Calls(
            of,
            timeout=self._timeout,
            budget=self._budget,
            approve=self._approve,
            on_connect=self._on_connect,
        )

    def time_allowed(self, most: float | None, *, counted: bool) -> dict[str, float]:
        """Returns the field of `open` for the tool time that does not count towards a cell's limit."""
        most = _tools.check_seconds(most, "tool_time")
        if counted:
            if most is not None:
                raise RequestError(f"tool_time is {most} and count_tool_time is set: give one of them")
            return {"at_most": 0.0}
        if most is not None:
            return {"at_most": most}
        calls = 10 if self._budget is None else min(self._budget, _tools.LONGEST)
        longest = max(self._timeout or 0.0, *(tool.timeout or 0.0 for tool in self.tools.values()), 0.0)
        return {"at_least": min(calls * longest, _tools.LONGEST)}

    def answer(self, frame: Frame, decoder: Decoder, room: float) -> Actions[None]:
        """Executes a call that the guest requested, and sends the result.

        The guest receives every `Exception`. Other exceptions, such as `KeyboardInterrupt`, propagate to
        the caller.
        """
        header = frame.header
        _check(header)
        buffers = _blobs.unpack(frame, decoder)
        reply: dict[str, Any] = {"kind": "return", "call": header["call"]}
        outgoing = _blobs.NO_BUFFERS
        try:
            args, kwargs, summary = yield from decode(frame, lambda: _arguments(header, buffers))
            value = yield from self._call(header, args, kwargs, summary)
            tree, packed = _values.encode(value)
            outgoing = _blobs.pack(packed, room)
            reply["value"] = tree
            cell = header.get("id")
            if self.tools[header["tool"]].ends_cell and (self._final is None or self._final[0] != cell):
                # Copies, because the tool may change its arrays.
                self._final = cell, tree, [memoryview(bytearray(data)) for data in packed]
        except Exception as error:
            reply["error"] = _tools.describe(error)
        try:
            yield message(reply, outgoing=outgoing)
        finally:
            outgoing.close()

    def settle(self, header: dict[str, Any], buffers: Sequence[memoryview]) -> Sequence[memoryview]:
        """Validates a guest's claim that a tool ended its cell. The claim holds only if the host returned
        such a result, which replaces the cell's value. Returns the value's buffers."""
        final, self._final = self._final, None
        if header.get("final") is not True:
            return buffers
        if final is None or final[0] != header.get("id"):
            header["final"] = False
            return buffers
        _, header["value"], buffers = final
        return buffers

    def decide(self, host: str, port: int, addresses: tuple[str, ...]) -> Actions[bool | None]:
        """Returns the decision on a connection; `None` without `on_connect`, whose exceptions propagate."""
        if self._on_connect is None:
            return None
        decide = self._tracked("on_connect", self._on_connect)
        verdict = yield Invoke(decide, (host, port, addresses), timeout=_DECISION)
        if not isinstance(verdict, bool):
            raise TypeError(f"on_connect returned {type(verdict).__name__}, not True or False")
        return verdict

    def _call(
        self, header: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any], summary: str | None
    ) -> Actions[Any]:
        name, cell = header["tool"], header.get("id")
        tool = self.tools.get(name)
        if tool is None:
            raise NameError(f"name {name!r} is not defined: the host has no such tool")
        if tool._shows_arguments and summary is not None:
            raise ValueError(f"the host shows what {name} gets, and this is {summary}: give it less")
        function = self._tracked(name, tool.function)
        if tool.ends_cell and cell != self._answered:
            # Does not count, so that a guest can answer after its budget is spent, but only once in a cell.
            self._answered = cell
        elif self._budget is not None and self._made >= self._budget:
            raise PermissionError(f"the budget of {self._budget} tool calls is spent")
        else:
            self._made += 1
        if self._approve is not None:
            verdict = yield Invoke(self._approve, (name, args, dict(kwargs)))
            if verdict is not None and verdict is not True:
                reason = verdict if isinstance(verdict, str) else "the host does not approve"
                raise PermissionError(f"the call of {name} was denied: {reason}")
        timeout = self._timeout if tool.timeout is None else tool.timeout
        return (yield Invoke(function, args, kwargs, timeout))

    def _tracked(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function to count it while it runs. Raises `RuntimeError` if too many were abandoned."""
        running = self._running
        if len(running) >= _MAX_ABANDONED:
            called = ", ".join(sorted(set(running.copy().values())))
            raise RuntimeError(
                f"{name} is not called while {_MAX_ABANDONED} calls that took too long still run on the "
                f"host, of {called}"
            )
        if _tools.is_async(function):
            # Not counted, because its task is cancelled at the timeout.
            return function

        def tracked(*args: Any, **kwargs: Any) -> Any:
            call = object()
            running[call] = name
            try:
                return function(*args, **kwargs)
            finally:
                del running[call]

        return tracked


def declarations(tools: Iterable[Tool]) -> dict[str, Any]:
    """Returns the request that declares these tools to the guest."""
    return {"kind": "tools", "tools": [tool.declaration() for tool in tools]}


def _arguments(
    header: Mapping[str, Any], buffers: Sequence[memoryview]
) -> tuple[tuple[Any, ...], dict[str, Any], str | None]:
    """Decodes the arguments, and returns a summary if they are too large to show."""
    decoder = _values.Decoder(buffers, _WORK)
    args = tuple(decoder.decode(tree) for tree in header.get("args", ()))
    kwargs = {str(name): decoder.decode(tree) for name, tree in header.get("kwargs", {}).items()}
    given = [*args, *kwargs.values()]
    return args, kwargs, _text.summary(decoder, given[0] if len(given) == 1 else given, buffers)


def _check(header: Mapping[str, Any]) -> None:
    shapes = (("call", int), ("tool", str), ("args", list), ("kwargs", dict))
    for name, kind in shapes:
        if type(header.get(name, kind())) is not kind:
            raise ProtocolError(f"the supervisor sent a call whose {name} is no {kind.__name__}")
    if "call" not in header or "tool" not in header:
        raise ProtocolError("the supervisor sent a call that does not say of what")

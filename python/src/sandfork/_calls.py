"""Calls of host tools: whether they are let through, what they give, and what is told of failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from . import _blobs, _tools, _values
from ._exceptions import RequestError
from ._frames import Frame, encode
from ._link import Link
from ._steps import Invoke, Send, Steps
from ._tools import Tool

# Whether a call is let through: `True` or `None` if it is, `False` or a reason if it is not.
Approve = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]


class Calls:
    """The tools of one sandbox, and what their calls are held to."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        *,
        timeout: float | None,
        budget: int | None,
        approve: Approve | None,
    ) -> None:
        self.tools = dict(tools)
        self._timeout = _tools.check_seconds(timeout, "tool_timeout")
        if budget is not None and (type(budget) is not int or budget < 0):
            raise RequestError(f"tool_budget is {budget!r}: give a number of calls, or None")
        self._budget = budget
        self._approve = approve
        # Over the sandbox's whole life: a guest that could end its session would else renew it.
        self._made = 0

    def declarations(self, names: Mapping[str, Tool] | None = None) -> list[dict[str, Any]]:
        """What the guest is told of these tools, or of all."""
        chosen = self.tools if names is None else names
        return [tool.declaration() for tool in chosen.values()]

    def answer(self, frame: Frame, link: Link, room: float) -> Steps[None]:
        """Makes a call that the guest asks for, and sends what it gives.

        All that an `Exception` can be is told to the guest; what is no `Exception`, such as
        `KeyboardInterrupt`, is the caller's.
        """
        header = frame.header
        buffers = _blobs.unpack(frame, link.decoder)
        reply: dict[str, Any] = {"kind": "return", "call": header["call"]}
        outgoing = None
        try:
            args, kwargs = _arguments(header, buffers)
            value = yield from self._call(str(header["tool"]), args, kwargs)
            reply["value"], outgoing = encoded(value, room)
        except Exception as error:
            reply.pop("value", None)
            reply["error"] = _tools.describe(error)
        try:
            yield message(reply, outgoing=outgoing)
        finally:
            if outgoing is not None:
                outgoing.close()

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps[Any]:
        tool = self.tools.get(name)
        if tool is None:
            raise NameError(f"name {name!r} is not defined: the host has no such tool")
        if self._budget is not None and self._made >= self._budget:
            raise PermissionError(f"the budget of {self._budget} tool calls is spent")
        self._made += 1
        if self._approve is not None:
            verdict = yield Invoke(self._approve, (name, args, dict(kwargs)))
            if verdict is not None and verdict is not True:
                reason = verdict if isinstance(verdict, str) else "the host does not approve"
                raise PermissionError(f"the call of {name} was denied: {reason}")
        timeout = self._timeout if tool.timeout is None else tool.timeout
        return (yield Invoke(tool.function, args, kwargs, timeout))


def refusal(frame: Frame, link: Link, why: str) -> Send:
    """The answer to a call that is not made."""
    _blobs.discard(frame, link.decoder)
    error = {"name": "RuntimeError", "message": why}
    return Send(encode({"kind": "return", "call": frame.header["call"], "error": error}))


def encoded(value: Any, room: float) -> tuple[Any, _blobs.Outgoing | None]:
    """A value's tree, and what carries its buffers."""
    tree, buffers = _values.encode(value)
    return tree, _blobs.pack(buffers, room)


def message(header: dict[str, Any], payload: bytes = b"", outgoing: _blobs.Outgoing | None = None) -> Send:
    """A message, with the buffers of its values."""
    if outgoing is None:
        return Send(encode(header, payload))
    return Send(encode({**header, "blob": outgoing.field}, outgoing.payload), outgoing.descriptor)


def _arguments(
    header: Mapping[str, Any], buffers: Sequence[memoryview]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    decoder = _values.Decoder(buffers)
    args = tuple(decoder.decode(tree) for tree in header.get("args", ()))
    kwargs = {str(name): decoder.decode(tree) for name, tree in header.get("kwargs", {}).items()}
    return args, kwargs

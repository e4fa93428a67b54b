"""Host tools: functions of the caller's that guest code calls by name.

Nothing of a function is sent but its name, its documentation and its signature. What it closes over,
such as clients and keys, stays on the host.
"""

from __future__ import annotations

import inspect
import keyword
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Union

from ._exceptions import RequestError

# Characters of a documentation or a message: what a worker's own messages are cut at, too.
_LONGEST_TEXT = 32 * 1024
# An absolute path of two or more parts that is not the tail of a word or of a URL.
_PATH = re.compile(r"(?<![\w/:.])/([\w.+@-]+)/[\w.+@/-]*")


class Tool:
    """A function of the host's that guest code may call.

    `function` may be async. `ends_cell` ends the guest's cell with what it returns, as an agent's
    `final_answer` does. `timeout` is in seconds for each call, in place of the sandbox's
    `tool_timeout`. `doc` and `signature` are what the guest's `help()` shows; without them they are
    taken from the function, its defaults shown as `...` because they may be secrets.
    """

    __slots__ = ("doc", "ends_cell", "function", "name", "signature", "timeout")

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        ends_cell: bool = False,
        timeout: float | None = None,
        doc: str | None = None,
        signature: str | None = None,
    ) -> None:
        self.name = check_name(name, "a tool")
        if not callable(function):
            raise RequestError(f"the tool {name!r} is of type {type(function).__name__}: give a function")
        self.function = function
        self.ends_cell = bool(ends_cell)
        self.timeout = check_seconds(timeout, f"the timeout of the tool {name!r}")
        self.doc = _text(inspect.getdoc(function) or "" if doc is None else doc)
        self.signature = _text(_signature(function) if signature is None else signature)

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, {self.signature or '(...)'})"

    def declaration(self) -> dict[str, Any]:
        """What the guest is told."""
        return {
            "name": self.name,
            "doc": self.doc,
            "signature": self.signature,
            "ends_cell": self.ends_cell,
        }


# What is taken wherever tools are: functions by the names that they get, or tools with names.
Tools = Union[Mapping[str, Union[Callable[..., Any], Tool]], Sequence[Union[Callable[..., Any], Tool]]]


def collect(tools: Tools | None) -> dict[str, Tool]:
    """Tools by name. Raises `RequestError` for what is none, or stands twice."""
    if tools is None:
        return {}
    if isinstance(tools, Mapping):
        return {check_name(name, "a tool"): _named(name, tool) for name, tool in tools.items()}
    found: dict[str, Tool] = {}
    for function in tools:
        name = function.name if isinstance(function, Tool) else getattr(function, "__name__", "")
        if name in found:
            raise RequestError(f"two tools are called {name!r}: give one of them another name")
        found[name] = _named(name, function)
    return found


def _named(name: str, tool: Callable[..., Any] | Tool) -> Tool:
    if not isinstance(tool, Tool):
        return Tool(name, tool)
    if tool.name == name:
        return tool
    return Tool(
        name,
        tool.function,
        ends_cell=tool.ends_cell,
        timeout=tool.timeout,
        doc=tool.doc,
        signature=tool.signature,
    )


def check_name(name: object, what: str) -> str:
    """A name that guest code can use."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise RequestError(f"{name!r} cannot be the name of {what}: give a Python identifier")
    return name


def check_seconds(value: float | None, what: str) -> float | None:
    """A time in seconds, or none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RequestError(f"{what} is of type {type(value).__name__}: give seconds")
    if not 0 < value < math.inf:
        raise RequestError(f"{what} is {value}: give seconds, more than 0, or None")
    return float(value)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004, whose remedy says less
    )


def describe(error: BaseException) -> dict[str, str]:
    """What the guest is told of an exception: its type and message. Its traceback, causes and locals
    stay here, and so do paths of the host."""
    return {"name": type(error).__name__, "message": _text(_PATH.sub(_hide, _message(error)))}


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        # Its text would name the file.
        return f"[Errno {error.errno}] {error.strerror}"
    try:
        return str(error)
    except Exception as second:
        return f"<{type(second).__name__} while reading the message>"


def _hide(match: re.Match[str]) -> str:
    """A path goes, unless nothing of this host begins like it, as with the route of a URL."""
    return "<path>" if os.path.lexists("/" + match.group(1)) else match.group()


class _Shown:
    """Something that a signature shows as this text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(function: Callable[..., Any]) -> str:
    try:
        found = inspect.signature(function)
        parameters = [_shown(parameter) for parameter in found.parameters.values()]
        returns = _annotation(found.return_annotation)
        return str(found.replace(parameters=parameters, return_annotation=returns))
    except Exception:
        # A builtin without one, or an annotation whose repr raises.
        return ""


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.empty if parameter.default is parameter.empty else _Shown("...")
    return parameter.replace(default=default, annotation=_annotation(parameter.annotation))


def _annotation(annotation: object) -> object:
    """Those that `from __future__ import annotations` left as text would be shown in quotes."""
    return _Shown(annotation) if isinstance(annotation, str) else annotation


def _text(text: object) -> str:
    """Text that can be sent: of bounded length, and without lone surrogates."""
    if not isinstance(text, str):
        raise RequestError(f"the text of a tool is of type {type(text).__name__}: give a str")
    if len(text) > _LONGEST_TEXT:
        half = _LONGEST_TEXT // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")

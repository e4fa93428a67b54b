"""Host tools: functions of the caller that guest code calls by name.

Only a function's name, documentation and signature are sent. Its closure, for example clients and keys,
stays on the host.
"""

from __future__ import annotations

import copy
import inspect
import keyword
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, Union

from . import _values
from ._exceptions import RequestError

# Maximum number of characters of a docstring or a message. A worker truncates its messages at the same
# length.
_LONGEST_TEXT = 32 * 1024
LONGEST = 1e9
"""Seconds: thirty years, which can be added to any clock without overflow."""
# An absolute path of two or more parts that is not the end of a word or a URL. Whether it exists on the host
# is not checked: the guest may have chosen the path, and would learn whether it exists.
_PATH = re.compile(r"(?<![\w/:.])/[\w.+@-]+/[\w.+@/-]*")


class Tool:
    """A function of the host that guest code may call.

    - `name`: the name that guest code calls.
    - `function`: may be async.
    - `ends_cell`: whether a call ends the guest's cell with the function's return value, as an agent's
      `final_answer` does.
    - `timeout`: seconds for each call, instead of the sandbox's `tool_timeout`.
    - `doc` and `signature`: the text that the guest's `help()` shows. By default they are taken from the
      function, with `...` for default values, which may be secrets.
    """

    __slots__ = ("doc", "ends_cell", "function", "name", "signature", "timeout")

    # Whether the host prints the arguments, so that calls with arguments that are too large to print are
    # refused.
    _shows_arguments = False

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
        """The declaration for the guest."""
        return {"name": self.name, "doc": self.doc, "signature": self.signature, "ends_cell": self.ends_cell}


# Accepted wherever tools are: functions by name, or objects that have names.
Tools = Union[Mapping[str, Union[Callable[..., Any], Tool]], Sequence[Union[Callable[..., Any], Tool]]]


def collect(tools: Tools | None) -> dict[str, Tool]:
    """Returns tools by name. Raises `RequestError` for an object that cannot be a tool, and for duplicate
    names."""
    if tools is None:
        return {}
    if not isinstance(tools, Iterable) or isinstance(tools, str):
        kind = type(tools).__name__
        raise RequestError(f"tools is of type {kind}: give a list of functions, or a dict of them by name")
    found: dict[str, Tool] = {}
    for name, function in tools.items() if isinstance(tools, Mapping) else map(_with_name, tools):
        name = check_name(name, "a tool")
        if name in found:
            raise RequestError(f"two tools are called {name!r}: give one of them another name")
        found[name] = _named(name, function)
    return found


def _with_name(function: object) -> tuple[object, Any]:
    if not callable(function) and not isinstance(function, Tool):
        raise RequestError(f"{_values.safe_repr(function)} cannot be a tool: give a function")
    # Objects that other libraries call tools have a `name`.
    name = getattr(function, "__name__", None) or getattr(function, "name", None)
    if name is None:
        kind = type(function).__name__
        raise RequestError(f"a tool of type {kind} has no name: give a dict of tools by name")
    return name, function


def _named(name: str, tool: Callable[..., Any] | Tool) -> Tool:
    if not isinstance(tool, Tool):
        return Tool(name, tool)
    if tool.name == name:
        return tool
    named = copy.copy(tool)
    named.name = name
    return named


def check_name(name: object, what: str) -> str:
    """Returns a name in the normal form that guest code uses. Raises `RequestError` if it is not an
    identifier."""
    known = _as_compiled(name) if isinstance(name, str) else ""
    if not known.isidentifier() or keyword.iskeyword(known):
        raise RequestError(f"{name!r} cannot be the name of {what}: give a Python identifier")
    return known


def _as_compiled(name: str) -> str:
    """Returns an identifier as Python's compiler normalizes it: in normal form NFKC."""
    if name.isascii():
        return name
    from unicodedata import normalize

    return normalize("NFKC", name)


def check_seconds(value: float | None, what: str) -> float | None:
    """Returns a time in seconds, at most `LONGEST`, or `None`. Raises `RequestError` for any other value."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RequestError(f"{what} is of type {type(value).__name__}: give seconds")
    if not 0 < value < math.inf:
        raise RequestError(f"{what} is {value}: give seconds, more than 0, or None")
    return float(min(value, LONGEST))


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call returns an awaitable."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004, whose remedy says less
    )


def describe(error: BaseException) -> dict[str, str]:
    """Describes an exception for the guest: its class, the nearest builtin base class, and its message. The
    traceback, causes, locals and host paths are not sent."""
    kind = type(error)
    base = next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")
    message = _PATH.sub("<path>", _text(_message(error)))
    named = {"name": kind.__name__, "message": message}
    return named if base == kind.__name__ else {**named, "base": base}


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        # `str(error)` would name the file.
        return f"[Errno {error.errno}] {error.strerror}"
    try:
        return str(error)
    except Exception as second:
        return f"<{type(second).__name__} while reading the message>"


class _Shown:
    """An object whose `repr()` is this text, for display in a signature."""

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
        # A builtin without a signature, or an annotation whose repr raises.
        return ""


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.empty if parameter.default is parameter.empty else _Shown("...")
    return parameter.replace(default=default, annotation=_annotation(parameter.annotation))


def _annotation(annotation: object) -> object:
    """Returns an annotation for display. A string annotation, as with `from __future__ import annotations`,
    would otherwise be shown in quotes."""
    return _Shown(annotation) if isinstance(annotation, str) else annotation


def _text(text: object) -> str:
    """Returns the text in a form that can be sent: truncated and without lone surrogates."""
    if not isinstance(text, str):
        raise RequestError(f"the text of a tool is of type {type(text).__name__}: give a str")
    return _values.cut(text, _LONGEST_TEXT)

"""Tools and managed agents as host tools: code calls them by name, and they run on the host."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextvars import ContextVar, copy_context
from typing import Any, Callable

from sandfork import Tool
from sandfork._tools import check_name

from ._values import to_plain

FINAL_ANSWER = "final_answer"

# The final answers of the code of this context. An abandoned call keeps its context, so its late result does
# not become the answer of later code.
_answers: ContextVar[list[Any] | None] = ContextVar("sandfork_final_answers", default=None)


class _Answer(Tool):
    """The final-answer tool. An agent logs the `str()` of the answer."""

    __slots__ = ()
    _shows_arguments = True


class HostTools:
    """The functions that an agent's code may call: smolagents' tools, managed agents and plain functions.

    Only calls cross the boundary. The objects, with their keys, sessions and closures, stay on the host.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = _named(functions)
        # Caches the result of `to_send`, because reading the signatures takes longer than sending them.
        self._declared: list[Tool] | None = None
        self._answers: list[Any] = []

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The functions by the names that code uses."""
        return self._functions

    def replace(self, functions: Mapping[str, Callable[..., Any]]) -> list[str]:
        """Replaces the functions. Returns the names that no longer exist."""
        before, self._functions, self._declared = self._functions, _named(functions), None
        return [name for name in before if name not in self._functions]

    def begin(self) -> None:
        """Prepares for a run of code in this context. Its calls run in copies of the context."""
        self._answers = []
        _answers.set(self._answers)

    @property
    def answered(self) -> bool:
        """Whether the code gave a final answer."""
        return bool(self._answers)

    @property
    def answer(self) -> Any:
        """The first final answer, as the host's tool returned it: it was not sent to the guest."""
        return self._answers[0]

    def to_send(self) -> list[Tool]:
        """Returns the functions as tools of a sandbox."""
        if self._declared is None:
            self._declared = [self._tool(name, function) for name, function in self._functions.items()]
        return self._declared

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state of a copy, which has no answers yet."""
        return {**self.__dict__, "_declared": None, "_answers": []}

    def _tool(self, name: str, function: Callable[..., Any]) -> Tool:
        def call(*args: Any, **kwargs: Any) -> Any:
            # A copied context keeps a tool's context variables from its caller.
            return copy_context().run(self._call, name, args, kwargs)

        try:
            # A tool object accepts any arguments and passes them to `forward`, whose signature applies.
            like = inspect.signature(getattr(function, "forward", function))
        except (TypeError, ValueError):
            like = inspect.signature(call)
        call.__signature__ = like  # type: ignore[attr-defined]
        kind = _Answer if name == FINAL_ANSWER else Tool
        return kind(name, call, ends_cell=name == FINAL_ANSWER, doc=_description(function))

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = self._functions.get(name)
        if function is None:
            raise NameError(f"there is no tool '{name}' any more")
        result = function(*args, **kwargs)
        if name == FINAL_ANSWER:
            answers = _answers.get()
            if answers is not None:
                answers.append(result)
            return None
        return to_plain(result)


def _named(functions: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    return {check_name(name, "a tool"): function for name, function in functions.items()}


def _description(function: Callable[..., Any]) -> str:
    description = getattr(function, "description", None)
    return description if isinstance(description, str) else inspect.getdoc(function) or ""

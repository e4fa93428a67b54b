"""Tools and managed agents as host tools: code calls them by name, they run here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextvars import Context
from typing import Any, Callable

from sandfork import Tool

from ._values import to_plain

FINAL_ANSWER = "final_answer"


class HostTools:
    """What an agent's code may call, while it runs: smolagents' tools, managed agents, plain functions.

    Only calls cross to the code's side. The objects with their keys, sessions and closures stay here.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = dict(functions)
        self._answers: list[Any] = []
        self._context: Context | None = None

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """By the names that code calls them by."""
        return self._functions

    def replace(self, functions: Mapping[str, Callable[..., Any]]) -> list[str]:
        """Takes these instead of what was there; the names that are no longer there."""
        gone = [name for name in self._functions if name not in functions]
        self._functions = dict(functions)
        return gone

    def begin(self, context: Context) -> None:
        """Code is about to run, on behalf of this context: what it calls runs in copies of it."""
        self._answers.clear()
        self._context = context

    @property
    def answered(self) -> bool:
        """Whether the code gave a final answer."""
        return bool(self._answers)

    @property
    def answer(self) -> Any:
        """The first one, as the final-answer tool made it: it never crossed."""
        return self._answers[0]

    def to_send(self) -> list[Tool]:
        """Each of them for a sandbox."""
        return [self._tool(name, function) for name, function in self._functions.items()]

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy, which runs nothing yet."""
        return {**self.__dict__, "_answers": [], "_context": None}

    def _tool(self, name: str, function: Callable[..., Any]) -> Tool:
        def call(*args: Any, **kwargs: Any) -> Any:
            # A context can be entered once at a time, and a tool may call code that calls a tool.
            context = self._context.copy() if self._context is not None else Context()
            return context.run(self._call, name, args, kwargs)

        try:
            # A tool is called as its `forward` is, though itself it takes anything.
            like = inspect.signature(getattr(function, "forward", function))
        except (TypeError, ValueError):
            like = inspect.signature(call)
        call.__signature__ = like  # type: ignore[attr-defined]
        return Tool(name, call, ends_cell=name == FINAL_ANSWER, doc=_description(function))

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = self._functions.get(name)
        if function is None:
            raise NameError(f"there is no tool '{name}' any more")
        result = function(*args, **kwargs)
        if name == FINAL_ANSWER:
            self._answers.append(result)
            return None
        return to_plain(result)


def _description(function: Callable[..., Any]) -> str:
    description = getattr(function, "description", None)
    return description if isinstance(description, str) else inspect.getdoc(function) or ""

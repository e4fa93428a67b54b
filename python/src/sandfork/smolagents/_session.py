"""The session that an executor's code runs in: made anew, with all that belongs in it, when it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable

from smolagents.local_python_executor import InterpreterError
from smolagents.utils import is_valid_name

from sandfork import (
    Execution,
    Policy,
    Sandbox,
    SessionClosed,
    SessionEnded,
    SessionForked,
    SupervisorError,
)

from ._imports import top_level_names
from ._tools import HostTools
from ._values import to_plain

# What the local executor has without an import. An import with globals of its own is not the code's,
# whose imports the policy bounds.
_FURNISH = """\
(lambda math: [globals().setdefault(name, getattr(math, name)) for name in (
    "acos asin atan atan2 ceil cos degrees exp floor log radians sin sqrt tan".split()
)])(__import__("math", {})) and None
"""
_MISSING = (
    '[name for name in %r if __import__("importlib.util", {}, {}, ["find_spec"]).find_spec(name) is None]'
)
# When one of these is raised nothing has run: the same code can be run in another session.
_GONE = (SessionEnded, SessionForked)
# When one of these is, something may have.
_BROKEN = (SessionClosed, SupervisorError)
_MOST_NAMES = 8


class AgentSession:
    """One live session at a time, with the tools and the variables that the agent has sent."""

    def __init__(self, policy: Policy, options: Mapping[str, Any], tools: HostTools) -> None:
        self._policy = policy
        self._options = dict(options)
        self._tools = tools
        self._withdrawn: set[str] = set()
        self._variables: dict[str, Any] = {}
        self._sandbox: Sandbox | None = None
        self._is_live = False
        self._loss_untold = False

    def live(self) -> Sandbox:
        """The sandbox, with a live session in it: a fresh one if there was none."""
        if self._sandbox is None:
            self._sandbox = Sandbox(self._policy, on_death="raise", **self._options)
        elif not self._is_live:
            # The same sandbox: its budget of tool calls is for all its sessions.
            self._sandbox.restart()
        else:
            return self._sandbox
        try:
            self._furnish(self._sandbox)
        except BaseException:
            self.close()
            raise
        self._is_live = True
        return self._sandbox

    def require(self, imports: Iterable[str]) -> None:
        """Raises `InterpreterError` where one of these is not installed for the code."""
        sandbox, names = self.live(), top_level_names(imports)
        missing = sandbox.run(_MISSING % names).value if names else None
        if missing:
            where = sandbox.info.python.environment
            self.close()
            raise InterpreterError(
                f"Non-installed authorized modules: {', '.join(map(str, missing))}. Please install these "
                f"modules into {where} or remove them from the authorized imports list."
            )

    def close(self) -> None:
        """Ends it, as its owner wants: there is nothing to tell the model."""
        sandbox, self._sandbox = self._sandbox, None
        self._is_live = self._loss_untold = False
        if sandbox is not None:
            sandbox.close()

    def send_tools(self, gone: Iterable[str]) -> None:
        """Makes the tools callable, and takes away the names of those that are gone."""
        self._withdrawn.update(gone)
        self._withdrawn.difference_update(self._tools.functions)

        def send(sandbox: Sandbox) -> None:
            self._withdraw(sandbox)
            sandbox.add_tools(self._tools.to_send())

        self._send(send)

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Defines variables. A name that is no identifier is left out: code cannot say it."""
        plain = {name: to_plain(value) for name, value in variables.items() if is_valid_name(name)}
        self._variables.update(plain)
        self._send(lambda sandbox: sandbox.set_variables(plain))

    def run(self, code: str, filename: str) -> tuple[Execution, str]:
        """Runs code; with it what the model has to know first, as that it ran in a fresh session."""
        try:
            execution, note = self._run(code, filename)
        except _GONE as error:
            self._lose(error)
            execution, note = self._run(code, filename)
        except _BROKEN as error:
            self._lose(error)
            raise
        if execution.session == "ended":
            self._lose()
        return execution, note

    def tell_loss(self) -> str:
        """What is lost and what is there again, where the session has ended; the model is told it now."""
        if self._is_live:
            return ""
        self._loss_untold = False
        names = list(self._variables)
        named = f"the variables {', '.join(names)}" if len(names) <= _MOST_NAMES else "its variables"
        there_again = f"the tools and {named}" if names else "the tools"
        return (
            "all variables, functions, imports and files of this and earlier steps are lost, and "
            f"{there_again} are there again"
        )

    def __getstate__(self) -> dict[str, Any]:
        """A copy has a session of its own, which begins with the tools and the variables."""
        own = {"_sandbox": None, "_is_live": False, "_loss_untold": self._sandbox is not None}
        return {**self.__dict__, **own}

    def _run(self, code: str, filename: str) -> tuple[Execution, str]:
        sandbox, note = self.live(), ""
        if self._loss_untold:
            self._loss_untold = False
            note = (
                "Note: the Python session had ended, and this code ran in a fresh one, without what "
                "earlier steps defined.\n"
            )
        return sandbox.run(code, filename=filename, last="statement"), note

    def _send(self, send: Callable[[Sandbox], object]) -> None:
        if not self._is_live:
            # A fresh one gets it with all the rest.
            return
        try:
            send(self.live())
        except (*_GONE, *_BROKEN) as error:
            self._lose(error)
            # It has all that was sent; where that is what ended the last one, its sender hears of it.
            self.live()

    def _lose(self, error: Exception | None = None) -> None:
        self._is_live = False
        self._loss_untold = True
        if isinstance(error, (SessionClosed, SessionForked)):
            # That sandbox is somebody else's, or nobody's.
            self._sandbox = None

    def _furnish(self, sandbox: Sandbox) -> None:
        prepared = sandbox.run(_FURNISH)
        if prepared.status != "ok":
            raise InterpreterError(f"the session could not be prepared: {prepared.error}")
        self._withdraw(sandbox)
        # In the order of `CodeAgent.run`: a tool's name is the tool's.
        sandbox.set_variables(self._variables)
        sandbox.add_tools(self._tools.to_send())

    def _withdraw(self, sandbox: Sandbox) -> None:
        if self._withdrawn:
            sandbox.run(f"[globals().pop(name, None) for name in {sorted(self._withdrawn)}] and None")

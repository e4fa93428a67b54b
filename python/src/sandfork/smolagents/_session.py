"""The session that an executor's code runs in, made anew with all that belongs in it when it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable, Optional

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

# The local executor has these without an import.
_MATH = (
    "from math import (acos, asin, atan, atan2, ceil, cos, degrees, exp, floor, log, radians, sin, "
    "sqrt, tan)\n"
)
# With globals of its own the import is not the code's, whose imports the policy bounds.
_MISSING = (
    '[name for name in {names!r} if __import__("importlib.util", {{}}, {{}}, ["find_spec"])'
    ".find_spec(name) is None]"
)
# Nothing has run when one of these is raised.
_GONE = (SessionEnded, SessionClosed, SessionForked)
_MOST_NAMES = 8


class AgentSession:
    """One live session at a time, with the tools and the variables that the agent has sent."""

    def __init__(self, policy: Policy, options: Mapping[str, Any], tools: HostTools) -> None:
        self._policy = policy
        self._options = dict(options)
        self._tools = tools
        self._variables: dict[str, Any] = {}
        self._sandbox: Optional[Sandbox] = None
        self._loss_untold = False

    @property
    def sandbox(self) -> Sandbox:
        """The live session; a fresh one if there is none."""
        if self._sandbox is None:
            self._sandbox = self._opened(())
        return self._sandbox

    def open(self, imports: Iterable[str]) -> None:
        """Opens it. Raises `InterpreterError` where one of these is not installed for it."""
        self._sandbox = self._opened(top_level_names(imports))

    def close(self) -> None:
        """Ends it, as its owner wants: there is nothing to tell the model."""
        self._drop()
        self._loss_untold = False

    def send_tools(self, gone: Iterable[str]) -> None:
        """Makes the tools callable, and takes away the names of those that are gone."""
        names = sorted(gone)

        def send(sandbox: Sandbox) -> None:
            if names:
                sandbox.run(f"[globals().pop(name, None) for name in {names!r}] and None")
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
            sandbox, note = self.sandbox, self._note()
            execution = sandbox.run(code, filename=filename, last="statement")
        except _GONE:
            self._drop()
            sandbox, note = self.sandbox, self._note()
            execution = sandbox.run(code, filename=filename, last="statement")
        except SupervisorError:
            self._drop()
            raise
        if execution.session == "ended":
            self._drop()
        return execution, note

    def tell_loss(self) -> str:
        """What is lost and what is there again, where the session has ended; the model is told it now."""
        if self._sandbox is not None:
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
        return {**self.__dict__, "_sandbox": None, "_loss_untold": self._sandbox is not None}

    def _note(self) -> str:
        if not self._loss_untold:
            return ""
        self._loss_untold = False
        return (
            "Note: the Python session had ended, and this code ran in a fresh one, without what "
            "earlier steps defined.\n"
        )

    def _send(self, send: Callable[[Sandbox], object]) -> None:
        if self._sandbox is None:
            # A fresh one gets it with all the rest.
            self._sandbox = self._opened(())
            return
        try:
            send(self._sandbox)
        except (*_GONE, SupervisorError):
            self._drop()
            self._sandbox = self._opened(())

    def _drop(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            self._loss_untold = True
            sandbox.close()

    def _opened(self, packages: Iterable[str]) -> Sandbox:
        sandbox = Sandbox(self._policy, on_death="raise", **self._options)
        try:
            prepared = sandbox.run(_MATH + _MISSING.format(names=list(packages)))
            if prepared.status != "ok":
                raise InterpreterError(f"the session could not be prepared: {prepared.error}")
            if prepared.value:
                raise InterpreterError(
                    f"Non-installed authorized modules: {', '.join(prepared.value)}. Please install these "
                    "modules or remove them from the authorized imports list. They were looked for in "
                    f"{sandbox.info.python.environment}."
                )
            # Last, and in the order of `CodeAgent.run`: a tool's name is the tool's.
            sandbox.set_variables(self._variables)
            sandbox.add_tools(self._tools.to_send())
        except BaseException:
            sandbox.close()
            raise
        return sandbox

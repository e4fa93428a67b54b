"""The session in which an executor's code runs. An ended session is replaced, with tools and variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable

from smolagents.local_python_executor import MAX_EXECUTION_TIME_SECONDS, InterpreterError
from smolagents.utils import is_valid_name

from sandfork import (
    Execution,
    Policy,
    RequestError,
    Sandbox,
    SandboxUnavailable,
    SessionClosed,
    SessionEnded,
    SessionForked,
    SupervisorError,
)

from ._imports import Imports
from ._tools import HostTools
from ._values import to_plain

# Defines the functions that the local executor provides without an import. Import restrictions of the policy
# do not apply, because the namespace is not named `__main__`.
_PREPARATION = """\
exec(
    "import math\\n"
    "names = 'acos asin atan atan2 ceil cos degrees exp floor log radians sin sqrt tan'.split()\\n"
    "[main.setdefault(name, getattr(math, name)) for name in names]",
    {"__name__": "sandfork_furnish", "main": globals()},
)
"""
# After one of these errors nothing has run, so the code can run in another session.
_GONE = (SessionEnded, SessionForked)
# After one of these errors the code may have run.
_BROKEN = (SessionClosed, SupervisorError)
_MAX_NAMES = 8


class AgentSession:
    """One live session at a time, with the tools and variables that the agent has sent."""

    def __init__(
        self, policy: Policy, options: Mapping[str, Any], tools: HostTools, *, rolls_back: bool = False
    ) -> None:
        self._policy = policy
        self._options = dict(options)
        self._tools = tools
        self._rolls_back = rolls_back
        self._withdrawn: set[str] = set()
        self._variables: dict[str, Any] = {}
        self._sandbox: Sandbox | None = None
        self._is_live = False
        self._loss_untold = False
        self.wall = 0.0
        """The time limit of each piece of code in seconds; set when the first session starts."""

    def live(self) -> Sandbox:
        """Returns the sandbox with a live session, which is started if necessary."""
        # A local copy, because any thread may close the sandbox at any time.
        sandbox = self._sandbox
        if sandbox is None:
            self._sandbox = sandbox = Sandbox(self._policy, on_death="raise", **self._options)
        elif not self._is_live:
            # The sandbox is kept, because its budget of tool calls applies to all its sessions.
            sandbox.restart()
        else:
            return sandbox
        try:
            self._prepare(sandbox)
        except BaseException:
            self.close()
            raise
        self._is_live = True
        self.wall = self._options.get("timeout") or sandbox.info.limits["limits.wall"]
        return sandbox

    def require(self, imports: Imports) -> None:
        """Installs missing packages, if that is allowed. Raises `InterpreterError` if an import is still
        missing."""
        try:
            packages = imports.packages() if imports.can_be_installed else []
            if packages and imports.missing(self.live()):
                self._install(packages)
            imports.require(self.live())
        except InterpreterError:
            self.close()
            raise

    def _install(self, packages: list[str]) -> None:
        """Replaces the session with one that has these packages."""
        tables = self._policy.tables()
        python = tables.get("python", {})
        if "packages" in python or "environment" in python:
            # The caller's policy determines the packages.
            return
        self.close()
        tables["python"] = {**python, "packages": packages}
        tables["environments"] = {"create": True}
        self._policy = Policy(**tables)
        try:
            self.live()
        except SandboxUnavailable as error:
            listed = ", ".join(packages)
            raise InterpreterError(f"The additional imports {listed} cannot be installed: {error}") from error

    def close(self) -> None:
        """Ends the session on its owner's request, so the loss is not reported to the model."""
        sandbox, self._sandbox = self._sandbox, None
        self._is_live = self._loss_untold = False
        if sandbox is not None:
            sandbox.close()

    def send_tools(self, gone: Iterable[str]) -> None:
        """Makes the tools callable, and removes the names in `gone`."""
        self._withdrawn.update(gone)
        self._withdrawn.difference_update(self._tools.functions)

        def send(sandbox: Sandbox) -> None:
            self._withdraw(sandbox)
            sandbox.add_tools(self._tools.to_send())

        self._send(send)

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Sets variables. Names that are not identifiers are omitted, because code cannot use them."""
        plain = {name: to_plain(value) for name, value in variables.items() if is_valid_name(name)}
        self._variables.update(plain)
        self._send(lambda sandbox: sandbox.set_variables(plain))

    def run(self, code: str, filename: str) -> tuple[Execution, str]:
        """Runs code. Returns its execution, and a note for the model if the session is fresh."""
        try:
            execution, note = self._run(code, filename)
        except _GONE as error:
            self._lose(error)
            execution, note = self._run(code, filename)
        except _BROKEN as error:
            self._lose(error)
            raise
        if execution.session == "ended" and not self._is_rolled_back():
            self._lose()
        return execution, note

    def branch(self, tools: HostTools) -> AgentSession:
        """Returns a session with a copy of this one's state, whose code calls these tools."""
        sandbox = self.live()
        other = AgentSession(self._policy, self._options, tools, rolls_back=self._rolls_back)
        other._withdrawn, other._variables = set(self._withdrawn), dict(self._variables)
        other._sandbox = sandbox.fork(tools=tools.to_send())
        other._is_live, other.wall = True, self.wall
        return other

    def report_loss(self) -> str:
        """Describes to the model which state was lost with an ended session, and which was restored; empty if
        the session is live."""
        if self._is_live:
            return ""
        self._loss_untold = False
        names = list(self._variables)
        named = f"the variables {', '.join(names)}" if len(names) <= _MAX_NAMES else "its variables"
        there_again = f"the tools and {named}" if names else "the tools"
        return (
            "all variables, functions, imports and files of this and earlier steps are lost, and "
            f"{there_again} are there again"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state of a copy, which starts its own session with the tools and the variables."""
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
        # Code that `bound_tool` could not parse may have rebound the name of a tool.
        sandbox.add_tools(self._tools.to_send())
        if not self._rolls_back:
            return sandbox.run(code, filename=filename, last="statement"), note
        try:
            snapshot = sandbox.snapshot()
        except RequestError as error:
            note += f"Note: if this code fails, what it changed stays ({error}).\n"
            return sandbox.run(code, filename=filename, last="statement"), note
        with snapshot:
            execution = sandbox.run(code, filename=filename, last="statement")
            if execution.status == "ok" or self._tools.answered:
                return execution, note
            sandbox.rollback(snapshot)
            note += "Note: this code failed, and everything that it changed was undone.\n"
            return execution, note

    def _is_rolled_back(self) -> bool:
        """Whether the sandbox is live although the last code ended its worker."""
        return self._sandbox is not None and self._sandbox.live

    def _send(self, send: Callable[[Sandbox], object]) -> None:
        if not self._is_live:
            # The next session receives all tools and variables.
            return
        try:
            send(self.live())
        except (*_GONE, *_BROKEN) as error:
            self._lose(error)
            # The new session receives everything that was sent so far. If this data ended the previous
            # session, the error is raised again here.
            self.live()

    def _lose(self, error: Exception | None = None) -> None:
        self._is_live = False
        self._loss_untold = True
        if isinstance(error, (SessionClosed, SessionForked)):
            # The sandbox is closed, or belongs to another process.
            self._sandbox = None

    def _prepare(self, sandbox: Sandbox) -> None:
        prepared = sandbox.run(_PREPARATION, timeout=MAX_EXECUTION_TIME_SECONDS)
        if prepared.status != "ok":
            error = prepared.error
            raise InterpreterError(f"the session could not be prepared: {error and error.value}")
        self._withdraw(sandbox)
        # In the order of `CodeAgent.run`: a tool takes precedence over a variable of the same name.
        sandbox.set_variables(self._variables)
        sandbox.add_tools(self._tools.to_send())

    def _withdraw(self, sandbox: Sandbox) -> None:
        if self._withdrawn:
            sandbox.run(f"[globals().pop(name, None) for name in {sorted(self._withdrawn)}] and None")

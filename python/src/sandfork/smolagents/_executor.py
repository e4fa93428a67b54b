"""The executor: runs an agent's code in a sandbox, and its tools on the host."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Callable

from smolagents.local_python_executor import (
    DEFAULT_MAX_LEN_OUTPUT,
    CodeOutput,
    PrintContainer,
    PythonExecutor,
)
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.utils import truncate_content

from sandfork import Execution, Opaque, RequestError, Sandbox, SandforkError, SessionClosed, SupervisorError
from sandfork._options import checked_count
from sandfork._values import harmless

from ._code import bound_tool
from ._errors import KEPT, CodeError, failure
from ._imports import Imports
from ._policy import FROM_POLICY, FromPolicy, PolicySource, executor_policy
from ._session import AgentSession
from ._tools import HostTools

# The executors whose code is running in this context. An executor that is called from its own code
# raises an error instead of waiting for itself.
_running: ContextVar[frozenset[int]] = ContextVar("sandfork_running_executors", default=frozenset())


class NativeExecutor(PythonExecutor):
    """Runs the code of a `CodeAgent` in a session of a sandbox.

    Tools and managed agents stay on the host, with their keys, clients and closures; code calls them by
    name. Variables, imports and functions are kept between steps and between runs.

    The agent passes `additional_authorized_imports` and `logger` to its executor. The other parameters are
    the agent's `executor_kwargs`:

    - `additional_imports`: the packages that code needs, as for the remote executors: names of distributions,
      with or without a version (`"pillow"`, `"numpy>=2"`), or of modules. If the interpreter lacks one, all
      are installed in a separate environment, which is kept. Code then has these packages instead of the
      interpreter's. If the installation fails, the constructor raises an error.
    - `imports`: `"installed"` lets code import the standard library and all installed packages.
      `"authorized"` allows only smolagents' base modules and the names in the two lists, with the error
      messages of the local executor. The default is `"authorized"` if only `additional_authorized_imports` is
      passed, as an agent does, and otherwise `"installed"`. The sandbox is the security boundary in both
      cases.
    - `policy`: a built-in name, a path, a `Policy`, or a dict of its tables. The default is `standard`. If it
      lists imports, the list applies, and authorized imports are added to it.
    - `interpreter`: a Python or a virtual environment whose packages code can import. The default is the
      interpreter that the policy names, or the one that runs the agent.
    - `timeout_seconds`: the time limit of each piece of code, not counting time in tools; `None` for no
      limit. The default is the policy's limit, or 30 s without a policy.
    - `max_print_outputs_length`: the maximum number of printed characters that the model sees.
    - `additional_functions`: host functions that code may call in addition to the tools.
    - `rollback_on_error`: whether failed code rolls back variables, imports and files. A note informs the
      model.
    - Any other parameter is an option of `Sandbox`, such as `tool_timeout`, `tool_budget` and `approve`.

    Give each agent its own executor: a shared executor serves its agents one after another.
    """

    def __init__(
        self,
        additional_authorized_imports: Sequence[str] | None = None,
        logger: AgentLogger | None = None,
        *,
        additional_imports: Sequence[str] | None = None,
        imports: str | None = None,
        policy: PolicySource = None,
        interpreter: str | None = None,
        timeout_seconds: float | FromPolicy | None = FROM_POLICY,
        max_print_outputs_length: int | None = None,
        additional_functions: Mapping[str, Callable[..., Any]] | None = None,
        rollback_on_error: bool = False,
        **sandbox_options: Any,
    ) -> None:
        requested = Imports(additional_imports, additional_authorized_imports, imports)
        self.additional_authorized_imports = list(additional_authorized_imports or ())
        self.additional_imports = list(additional_imports or ())
        self.authorized_imports = requested.authorized
        self.logger = logger
        self.max_print_outputs_length = (
            DEFAULT_MAX_LEN_OUTPUT
            if max_print_outputs_length is None
            else checked_count(max_print_outputs_length, "max_print_outputs_length", sys.maxsize)
        )
        if not isinstance(additional_functions, (Mapping, type(None))):
            kind = type(additional_functions).__name__
            raise RequestError(f"additional_functions is of type {kind}: give a dict of functions by name")
        self.additional_functions = dict(additional_functions or {})
        self._tools = HostTools(self.additional_functions)
        sandbox_policy = executor_policy(policy, self.authorized_imports, interpreter, timeout_seconds)
        self._session = AgentSession(
            sandbox_policy, sandbox_options, self._tools, rolls_back=rollback_on_error
        )
        self._steps = 0
        self._make_locks()
        # The session starts now and not at the first step, so that the caller and not the model gets an error
        # about the policy, the host or the imports.
        with self._turn():
            self._session.require(requested)

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox with a live session, for its files and variables. An ended session is replaced."""
        with self._turn():
            return self._session.live()

    @property
    def state(self) -> dict[str, Any]:
        """The namespace, in which `_print_outputs` is the output of the code that this thread ran last."""
        printed = getattr(self._printed, "value", self._last_printed)
        return {"__name__": "__main__", "_print_outputs": printed}

    @property
    def static_tools(self) -> dict[str, Callable[..., Any]]:
        """The tools that code may call, by name."""
        return dict(self._tools.functions)

    def branch(self) -> NativeExecutor:
        """Returns an independent executor with a copy of the state: variables, imports and files. Both call
        the same tools on the host."""
        with self._turn():
            tools = HostTools(self._tools.functions)
            session = self._session.branch(tools)
            other: NativeExecutor = object.__new__(type(self))
            other.__setstate__(
                {**self.__getstate__(), "logger": self.logger, "_tools": tools, "_session": session}
            )
            return other

    def send_tools(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        """Replaces the tools and managed agents that code may call."""
        with self._turn():
            gone = self._tools.replace({**tools, **self.additional_functions})
            self._session.send_tools(gone)

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Sets variables for code. A value that cannot be transferred becomes an `Opaque` with its repr."""
        with self._turn():
            self._session.send_variables(variables)

    def __call__(self, code_action: str) -> CodeOutput:
        """Runs code. Raises `CodeError`, for the model, if the code fails or reaches a limit."""
        with self._turn():
            self._print("")
            tool = bound_tool(code_action, self._tools.functions)
            if tool is not None:
                raise CodeError(
                    f"Cannot assign to name '{tool}': doing this would erase the existing tool! "
                    "Nothing was run; use another name."
                )
            self._steps += 1
            filename = f"<code {self._steps}>"
            self._tools.begin()
            execution, note = self._run(code_action, filename)
            logs = self._print(note + "".join(execution.logs.stdout))
            self._log_stderr("".join(execution.logs.stderr))
            if self._tools.answered:
                # The task is done, even if the code failed after the answer.
                return CodeOutput(output=self._tools.answer, logs=logs, is_final_answer=True)
            if execution.status != "ok":
                lost, wall = self._session.report_loss(), self._session.wall
                # A note already describes the kept state, and the first step has no earlier state.
                kept = "" if note or self._steps == 1 else KEPT
                raise failure(code_action, filename, execution, note=note, lost=lost, kept=kept, wall=wall)
            return CodeOutput(output=_showable(execution), logs=logs, is_final_answer=False)

    def cleanup(self) -> None:
        """Ends the session without waiting. Code that another thread is running in it fails. A later run
        starts a fresh session."""
        self._session.close()

    def delete(self) -> None:
        """Calls `cleanup`. Some remote executors use this name."""
        self.cleanup()

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state of a copy: the same tools and variables. The copy starts its own session on
        demand, and has no logger, because an agent's logger cannot be copied."""
        own = ("_lock", "_printed", "logger")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.logger = None
        self.__dict__.update(state)
        self._make_locks()

    def _make_locks(self) -> None:
        # Reentrant, because a signal handler or a finalizer may run before the holder is added to `_running`.
        self._lock = threading.RLock()
        self._printed = threading.local()
        self._last_printed = PrintContainer()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Gives this caller exclusive use of the executor."""
        running = _running.get()
        if id(self) in running:
            raise RuntimeError(
                "this executor is running the code that asked for this: give each agent an executor "
                "of its own"
            )
        with self._lock:
            token = _running.set(running | {id(self)})
            try:
                yield
            finally:
                _running.reset(token)

    def _run(self, code: str, filename: str) -> tuple[Execution, str]:
        try:
            return self._session.run(code, filename)
        except (SessionClosed, SupervisorError) as error:
            # The error's own message is for the host's operator, not for the model.
            lost = self._session.report_loss()
            raise CodeError(f"Code execution was stopped: the sandbox was closed; {lost}.") from error
        except SandforkError as error:
            raise CodeError(f"Code execution was stopped: {error}") from error

    def _print(self, text: str) -> str:
        printed = PrintContainer()
        # Control characters are escaped, because agents log the text to a terminal.
        printed.append(truncate_content(harmless(text), max_length=self.max_print_outputs_length))
        self._printed.value = self._last_printed = printed
        return str(printed)

    def _log_stderr(self, text: str) -> None:
        # Not part of the result, as with the local executor, where stderr is the host's.
        if text and self.logger is not None:
            self.logger.log(f"stderr of the code:\n{harmless(text)}", level=LogLevel.DEBUG, markup=False)


def _showable(execution: Execution) -> Any:
    """Returns the value, or an `Opaque` if its text would take too long to compute: agents log its
    `str()`."""
    value = execution.value
    if execution.summary is None:
        return value
    return Opaque(type(value).__name__, execution.text or execution.summary)

"""Why a piece of code did not do what it was to do, told to the model that wrote it."""

from __future__ import annotations

from smolagents.local_python_executor import ExecutionTimeoutError, InterpreterError
from smolagents.utils import AgentExecutionError


class CodeError(AgentExecutionError, InterpreterError):
    """Code failed, or was stopped. The message is for the model, which can mend its code by it.

    It is what the local executor raises and what the remote ones raise, so that either is caught.
    Unlike other `AgentError`s it logs nothing: the agent does when it catches it.
    """

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
        self.message = message


class CodeTimeout(CodeError, ExecutionTimeoutError):
    """Code ran for longer than `timeout_seconds`."""

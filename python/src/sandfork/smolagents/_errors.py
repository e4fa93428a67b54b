"""Errors of a piece of code, for the model that wrote it."""

from __future__ import annotations

from smolagents.local_python_executor import ExecutionTimeoutError, InterpreterError
from smolagents.utils import AgentExecutionError

from sandfork._terminal import harmless


class CodeError(AgentExecutionError, InterpreterError):
    """Code failed or was stopped. The message is for the model, which can fix its code with it.

    It is a subclass of the error of the local executor and of that of the remote executors, so a handler for
    either catches it. Unlike other `AgentError`s it logs nothing: the agent logs it when it catches it, and
    the message has no control characters that a terminal would obey.
    """

    def __init__(self, message: str) -> None:
        self.message = harmless(message)
        Exception.__init__(self, self.message)


class CodeTimeout(CodeError, ExecutionTimeoutError):
    """Code ran for longer than `timeout_seconds`."""

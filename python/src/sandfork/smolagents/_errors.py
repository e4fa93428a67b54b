"""Formats errors of code for the model that wrote it."""

from __future__ import annotations

import re

from smolagents.local_python_executor import ExecutionTimeoutError, InterpreterError
from smolagents.utils import AgentExecutionError

from sandfork import Denial, Execution, ExecutionError
from sandfork._text import shortened
from sandfork._values import harmless

from ._code import failing_source

_SYNTAX_ERRORS = ("SyntaxError", "IndentationError", "TabError")
# Maximum characters. A longer traceback mostly repeats the same frames.
_MAX_TRACEBACK = 4000
# Python's heading of the traceback of an exception group.
_GROUP = "  + Exception Group Traceback (most recent call last):\n"
KEPT = "what earlier steps defined is kept"


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


def failure(
    code: str, filename: str, execution: Execution, *, note: str, lost: str, kept: str, wall: float
) -> CodeError:
    """Returns the error for failed code. The message starts with `note`. `lost` describes the lost state, and
    is empty if the session is live; `kept` describes the kept state. `wall` is the time limit in seconds."""
    left = f"; {lost or kept}" if lost or kept else ""
    error = execution.error or ExecutionError("", f"it ended with status {execution.status}", "")
    kind = CodeError
    if execution.status == "exit":
        message = (
            f"The code called exit ({execution.exit_code}), which ends the step without an answer{left}. "
            "Give the answer with final_answer(...)."
        )
    elif execution.status in ("timeout", "cpu-limit"):
        kind = CodeTimeout
        # The local executor's wording.
        of = f" of {wall:g} seconds" if execution.status == "timeout" else ""
        message = f"Code execution exceeded the maximum execution time{of}: {error.value}{left}."
    elif execution.status != "exception":
        message = f"Code execution was stopped: {error.value}{left}."
    else:
        raised = _exception(code, filename, error) + _refused(execution, error)
        message = _syntax_error(filename, error) or raised
        message += f"\nThe session ended with it: {lost}." if lost else ""
    return kind(note + message)


def _syntax_error(filename: str, error: ExecutionError) -> str | None:
    """Returns the local executor's message for a syntax error; `None` for other errors, and for a syntax
    error in nested code."""
    place = re.search(rf'^  File "{re.escape(filename)}", line (\d+)\n', error.traceback, re.MULTILINE)
    if error.name not in _SYNTAX_ERRORS or place is None:
        return None
    quoted = error.traceback[place.end() :].rstrip().rpartition("\n")[0]
    message = f"Code parsing failed on line {place[1]} due to: {error.name}: {error.value}"
    return f"{message}\n{quoted}" if quoted else message


def _exception(code: str, filename: str, error: ExecutionError) -> str:
    """Returns the local executor's message. Adds the traceback if the error is in a called function, or is an
    exception group, whose message does not describe its members."""
    cause = f"{error.name}: {error.value}" if error.value else error.name
    is_group = _GROUP in error.traceback
    # Lines of a group begin with a bar, and those of its parts are indented more.
    module_frame = rf'^(?:  \| )?  File "{re.escape(filename)}", line (\d{{1,9}}), in <module>$'
    lines = re.findall(module_frame, error.traceback, re.MULTILINE)
    # The last match belongs to the exception itself, the earlier ones to its causes.
    place = f" at line '{failing_source(code, int(lines[-1]))}'" if lines else ""
    message = f"Code execution failed{place} due to: {cause}"
    is_deep = bool(lines) and error.traceback.count('\n  File "') > 1
    if not (is_deep or is_group):
        return message
    return f"{message}\n{shortened(error.traceback.rstrip(), _MAX_TRACEBACK)}"


def _refused(execution: Execution, error: ExecutionError) -> str:
    """Describes the first refusal that caused an error and that a policy could allow. The executor never sets
    `ask_host`, so the model does not learn which files the host has."""
    # The message of a refused import already names the list. Limits are reported separately.
    denials = (
        denial
        for denial in execution.denied
        if denial.key and denial.operation not in ("import", "limit") and _is_behind(error, denial)
    )
    first = next(denials, None)
    return "" if first is None else f"\nThe sandbox refused: {first}"


def _is_behind(error: ExecutionError, denial: Denial) -> bool:
    """Returns whether a refusal caused an error. The filter also reports calls that a library tries and can
    do without, as `requests` does when it is imported."""
    is_of_filter = denial.operation in ("socket", "system call") and denial.reported_by != "guest"
    return not is_of_filter or f"[Errno {denial.errno}]" in error.traceback

"""How a piece of code failed, told to the model that wrote it."""

from __future__ import annotations

import re

from sandfork import Execution, ExecutionError

from ._code import failing_source
from ._errors import CodeError, CodeTimeout

_SYNTAX_ERRORS = ("SyntaxError", "IndentationError", "TabError")
# Characters. What is longer is mostly the same frames again.
_MOST_TRACEBACK = 4000
_KEPT = "what earlier steps defined is kept"


def failure(code: str, filename: str, execution: Execution, lost: str) -> CodeError:
    """Why it failed, and what of the session is left. `lost` is empty where the session lives."""
    left = lost or _KEPT
    if execution.status == "exit":
        return CodeError(
            f"The code called exit ({execution.exit_code}), which ends the step without an answer; {left}. "
            "Give the answer with final_answer(...)."
        )
    told = execution.error or ExecutionError("", f"it ended with status {execution.status}", "")
    if execution.status in ("timeout", "cpu-limit"):
        return CodeTimeout(f"Code execution exceeded the maximum execution time: {told.value}; {left}.")
    if execution.status != "exception":
        return CodeError(f"Code execution was stopped: {told.value}; {left}.")
    raised = _syntax_error(filename, told) or _exception(code, filename, told)
    return CodeError(f"{raised}\nThe session ended with it: {lost}." if lost else raised)


def _syntax_error(filename: str, told: ExecutionError) -> str | None:
    """In the words of the local executor. `None` where it is another one, or of code within the code."""
    place = re.search(rf'^  File "{re.escape(filename)}", line (\d+)\n', told.traceback, re.MULTILINE)
    if told.name not in _SYNTAX_ERRORS or place is None:
        return None
    quoted = told.traceback[place.end() :].rstrip().rpartition("\n")[0]
    said = f"Code parsing failed on line {place[1]} due to: {told.name}: {told.value}"
    return f"{said}\n{quoted}" if quoted else said


def _exception(code: str, filename: str, told: ExecutionError) -> str:
    """In the words of the local executor, with the traceback where the error lies deeper than that."""
    cause = f"{told.name}: {told.value}" if told.value else told.name
    module_frame = rf'^  File "{re.escape(filename)}", line (\d+), in <module>$'
    lines = re.findall(module_frame, told.traceback, re.MULTILINE)
    if not lines:
        return f"Code execution failed due to: {cause}"
    # The last one is of the exception itself; those before are of what it was raised from.
    said = f"Code execution failed at line '{failing_source(code, int(lines[-1]))}' due to: {cause}"
    if told.traceback.count('\n  File "') < 2:
        return said
    return f"{said}\n{_shortened(told.traceback.rstrip())}"


def _shortened(text: str) -> str:
    if len(text) <= _MOST_TRACEBACK:
        return text
    half = _MOST_TRACEBACK // 2
    return f"{text[:half]}\n...\n{text[-half:]}"

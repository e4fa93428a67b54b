"""An execution as text for a model, and as short data."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _values
from ._exceptions import RequestError

if TYPE_CHECKING:
    from ._execution import Execution
    from ._result import Result

# The `repr()` of an object of a class without one of its own.
_NAMED = re.compile(r"<[^<>\n]* object(?: at 0x[0-9a-f]+)?>")
# The least number of characters in which an error and a note of what is left out still say something.
_SHORTEST = 200
# Bytes of a value of which a `repr()` is made, whose characters may take sixteen times as many.
_LARGEST_REPR = 16 << 20


def summary(decoder: _values.Decoder, value: Any, buffers: Sequence[memoryview]) -> str | None:
    """What stands for the `repr()` of a decoded value that takes too much time or memory; `None` for any
    other. The guest chooses what it sends, and the caller pays for the text."""
    size, kind = sum(map(len, buffers)), type(value)
    if decoder.has_long_int:
        return f"<{kind.__name__} with an integer of more than 4300 digits>"
    if size > _LARGEST_REPR and kind.__module__ == "builtins":
        return f"<{kind.__name__} of {size} bytes>"
    if decoder.shown > _values.MAX_SHOWN:
        return f"<{kind.__name__}, too large to show>"
    return None


def described(execution: Execution, max_length: int) -> str:
    """The text of `Execution.to_text`."""
    if type(max_length) is not int or max_length < _SHORTEST:
        raise RequestError(f"max_length is {max_length!r}: give a number of at least {_SHORTEST}")
    printed = _printed(execution)
    end = _end(execution)
    # How the cell ended counts more than its output, and gets at most half of the room.
    room = max_length - min(len(printed), max_length // 2) - 1
    end = shortened(end, room)
    printed = shortened(printed, max_length - len(end) - 1)
    if printed and end and not printed.endswith("\n"):
        printed += "\n"
    return printed + end


def shortened(text: str, length: int) -> str:
    """Text of at most this length, without its middle if it is longer."""
    if len(text) <= length:
        return text
    # No number of characters that are left out takes more digits than that of all.
    kept = max(0, length - len(_note(len(text))))
    note = _note(len(text) - kept)[:length]
    return text[: kept - kept // 2] + note + text[len(text) - kept // 2 :]


def _note(left_out: int) -> str:
    return f"\n... {left_out} characters left out ...\n"


def _printed(execution: Execution) -> str:
    stdout, stderr = ("".join(pieces) for pieces in execution.logs)
    if not stderr:
        return stdout
    if stdout and not stdout.endswith("\n"):
        stdout += "\n"
    return f"{stdout}[stderr]\n{stderr}"


def _end(execution: Execution) -> str:
    """The value or the error, and what the cell showed besides."""
    shown = [result for result in execution.results if not result.is_main_result]
    lines = [readable(result) or f"[shown: {', '.join(result.formats())}]" for result in shown]
    text, error = next(map(readable, filter(_is_main, execution.results)), None), execution.error
    if error is not None:
        lines.append(error.traceback.rstrip("\n") or f"{error.name}: {error.value}")
        # The traceback of an exception ends with it, though not always in the words of its message.
        is_told = execution.status == "exception" or error.value in error.traceback
        if error.traceback and not is_told:
            lines.append(f"{error.name}: {error.value}")
    elif text is not None:
        lines.append(f"[value] {text}")
    if execution.session == "ended" and execution.status not in ("ok", "exit", "exception"):
        lines.append("[the session has ended: variables, imports and files are lost]")
    return "\n".join(lines)


def _is_main(shown: Result) -> bool:
    return shown.is_main_result


def readable(shown: Result) -> str | None:
    """A result's text. Where that only names an object, as of IPython's `Markdown`, its form's source."""
    text = shown.text
    if text is None or _NAMED.fullmatch(text):
        sources = (shown._plain(name) for name in ("markdown", "latex", "json"))
        return next((source for source in sources if isinstance(source, str) and source), text)
    return text


def compact(execution: Execution) -> dict[str, Any]:
    """The data of `Execution.to_dict(compact=True)`."""
    document: dict[str, Any] = {"status": execution.status, "exit_code": execution.exit_code}
    if execution.limit is not None:
        document["limit"] = execution.limit.name
    stdout, stderr = ("".join(pieces) for pieces in execution.logs)
    document["stdout"] = stdout
    if stderr:
        document["stderr"] = stderr
    value = plain_value(execution)
    if value is not None:
        document["value"] = value
    error = execution.error
    if error is not None:
        document["error"] = {"name": error.name, "message": error.value}
    document["wall_ms"] = execution.usage.wall_ms
    return document


def plain_value(execution: Execution) -> Any:
    """The value as JSON represents it, or its text if that is all that the caller may be made to compute."""
    # To decode it says whether it has a summary.
    value = execution.value
    return plain(value) if execution.summary is None else execution.text or execution.summary


def plain(value: Any) -> Any:
    """The value as JSON represents it. What it has no form for is its `repr()`."""
    kind = type(value)
    if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
        return value
    if kind in (list, tuple):
        return [plain(part) for part in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: plain(part) for key, part in value.items()}
    return _values.safe_repr(value)

"""Formats an execution as text for a model, and as compact data."""

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

# The default `repr()` of an object.
_NAMED = re.compile(r"<[^<>\n]* object(?: at 0x[0-9a-f]+)?>")
# The minimum length in which an error and a note on omitted text are still readable.
_SHORTEST = 200
# The maximum size in bytes of a value whose `repr()` is computed. The text may take sixteen times as much.
_LARGEST_REPR = 16 << 20


def summary(decoder: _values.Decoder, value: Any, buffers: Sequence[memoryview]) -> str | None:
    """Returns a replacement for the `repr()` of a decoded value if that would take too much time or memory,
    and otherwise `None`. The guest chooses the value, and the caller pays for its text."""
    size, kind = sum(map(len, buffers)), type(value)
    if decoder.has_long_int:
        return f"<{kind.__name__} with an integer of more than 4300 digits>"
    if size > _LARGEST_REPR and kind.__module__ == "builtins":
        return f"<{kind.__name__} of {size} bytes>"
    if decoder.shown > _values.MAX_SHOWN:
        return f"<{kind.__name__}, too large to show>"
    return None


def described(execution: Execution, max_length: int) -> str:
    """Returns the text of `Execution.to_text`."""
    if type(max_length) is not int or max_length < _SHORTEST:
        raise RequestError(f"max_length is {max_length!r}: give a number of at least {_SHORTEST}")
    printed = _printed(execution)
    end = _end(execution)
    # The end of the cell is more important than its output, which is guaranteed only half of the length.
    room = max_length - min(len(printed), max_length // 2) - 1
    end = shortened(end, room)
    printed = shortened(printed, max_length - len(end) - 1)
    if printed and end and not printed.endswith("\n"):
        printed += "\n"
    return printed + end


def shortened(text: str, length: int) -> str:
    """Shortens a text to at most this length by removing its middle."""
    if len(text) <= length:
        return text
    # The note for the full length is at least as long as the final note.
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
    """Returns the displays of the cell, and its value or error."""
    shown = [result for result in execution.results if not result.is_main_result]
    lines = [readable(result) or f"[shown: {', '.join(result.formats())}]" for result in shown]
    text, error = next(map(readable, filter(_is_main, execution.results)), None), execution.error
    if error is not None:
        lines.append(error.traceback.rstrip("\n") or f"{error.name}: {error.value}")
        # The traceback of an exception ends with the exception, though its text may differ from the message.
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
    """Returns a result's text, or the source of another form if the text only names an object, as for
    IPython's `Markdown`."""
    text = shown.text
    if text is None or _NAMED.fullmatch(text):
        sources = (shown._plain(name) for name in ("markdown", "latex", "json"))
        return next((source for source in sources if isinstance(source, str) and source), text)
    return text


def compact(execution: Execution) -> dict[str, Any]:
    """Returns the data of `Execution.to_dict(compact=True)`."""
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
    """Returns the value as JSON represents it, or only its text or summary if converting it
    would be too expensive."""
    # Reading the value sets the summary.
    value = execution.value
    return plain(value) if execution.summary is None else execution.text or execution.summary


def plain(value: Any) -> Any:
    """Returns the value as JSON represents it. Parts that JSON cannot represent are their `repr()`."""
    kind = type(value)
    if value is None or kind in (bool, int, str) or (kind is float and math.isfinite(value)):
        return value
    if kind in (list, tuple):
        return [plain(part) for part in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: plain(part) for key, part in value.items()}
    return _values.safe_repr(value)

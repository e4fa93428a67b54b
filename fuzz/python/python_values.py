"""Values, as the guest and the client read and write them: nothing but `ValueError` is raised, what is
written the Rust side takes, and a tree that went through it means the same."""

from __future__ import annotations

import json
import sys
import warnings

from sandfork import _values

NAME = "python_values"
INPUTS = 30_000
CORPUS = "values"
ABOUT = "Python's values: ValueError or a value, which Rust takes when written, and which reads back"

# A hostile array of halves of dates is none of a reader's business to be quiet about.
warnings.simplefilter("ignore")
# What is compared here is written out whole. Python 3.9 has no limit in its first releases.
if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)


class Target:
    def __init__(self, rust) -> None:
        self._rust = rust

    def check(self, data: bytes) -> tuple[str, str]:
        text, buffers = parse(data)
        try:
            tree = json.loads(text, parse_int=integer)
        except (ValueError, RecursionError):
            return "refused", "no JSON"
        lengths = [buffer.nbytes for buffer in buffers]
        read = decoded(tree, buffers)
        taken, told = self._rust.value(text, lengths)
        # Rust fills in what may be absent, so a tree that is refused here may be taken behind it.
        if taken and not isinstance(read, Refused):
            through = decoded(json.loads(told), buffers)
            assert canonical(read) == canonical(through), f"{read!r} is {through!r} behind Rust"
        if isinstance(read, Refused):
            return "refused", "".join(filter(str.isalpha, read.why))[:60]
        self._check_written(read)
        return "taken", type(read).__name__

    def _check_written(self, value: object) -> None:
        tree, buffers = _values.encode(value)
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        text = json.dumps(tree, ensure_ascii=False, allow_nan=False).encode()
        taken, told = self._rust.value(text, [view.nbytes for view in views])
        assert taken, f"{text[:1000]!r} is refused: {told}"
        again = _values.decode(tree, views)
        # What cannot cross, such as what is too deep, is only shown.
        shown = b'"type": "opaque"' in text
        assert shown or canonical(value) == canonical(again), f"{value!r} came back as {again!r}"


def integer(text: str) -> int | float:
    """JSON has no zero below zero but as a float, which is what Rust takes it for; nobody writes it."""
    return -0.0 if text == "-0" else int(text)


class Refused:
    def __init__(self, why: str) -> None:
        self.why = why


def decoded(tree: object, buffers: list[memoryview]) -> object:
    try:
        return _values.decode(tree, buffers)
    except ValueError as error:
        return Refused(str(error))


def parse(data: bytes) -> tuple[bytes, list[memoryview]]:
    """As the Rust target has it: a tree, a zero byte, the number of buffers and their lengths."""
    text, _, rest = data.partition(b"\0")
    count = rest[0] % 17 if rest else 0
    lengths = [int.from_bytes(rest[1 + 2 * n : 3 + 2 * n], "little") for n in range(count)]
    _, total = _values.layout(lengths)
    whole = (rest * (total // max(1, len(rest)) + 1))[:total]
    return text, _values.split(memoryview(bytearray(whole)), lengths)


def canonical(value: object) -> object:
    """Equal for values that say the same; those that are no number are equal to themselves."""
    kind = type(value)
    if isinstance(value, Refused):
        return "refused"
    if kind in (list, tuple):
        return kind, [canonical(item) for item in value]
    if kind in (set, frozenset):
        return kind, sorted(repr(canonical(item)) for item in value)
    if kind is dict:
        return kind, [(canonical(key), canonical(item)) for key, item in value.items()]
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return kind, value.dtype.str, value.shape, value.tobytes()
    if hasattr(value, "tobytes") and hasattr(value, "mode"):
        return kind, value.mode, value.size, value.tobytes()
    return kind, repr(value)

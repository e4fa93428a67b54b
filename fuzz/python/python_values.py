"""Values, as the guest and the client read and write them: only `ValueError` is raised, Rust accepts what is
written, and a tree that Rust re-encodes means the same. The work of reading is proportional to the input
and to the part of the budget that it used."""

from __future__ import annotations

import json
import sys
import warnings

from sandfork import _values

# The budget of reading an input: small enough that an input of 64 KiB can exceed it.
WORK = 1 << 15
# Function calls for each byte and each unit of work, and a base for reading anything: a count is the same on
# every machine. The watchdog of processor time limits a single call.
CALLS = 40
FIRST_CALLS = 100_000

# A hostile array may contain dates for which pandas warns, which is no defect of the reader.
warnings.simplefilter("ignore")
# Comparison converts integers of any length to text. The first releases of Python 3.9 have no limit.
if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)


class Target:
    def __init__(self, rust) -> None:
        self._rust = rust
        # The imports that the first table triggers do not count as work of reading it.
        try:
            import pandas
            from PIL import Image
        except ImportError:
            return
        moments = pandas.date_range("2024", periods=2, tz="Europe/Vienna")
        frame = pandas.DataFrame({"a": moments}, pandas.MultiIndex.from_arrays([[1, 2], ["x", "y"]]))
        for value in (frame, Image.new("L", (1, 1))):
            tree, kept = _values.encode(value)
            repr(_values.decode(tree, [memoryview(bytes(buffer)) for buffer in kept]))

    def check(self, data: bytes) -> bool:
        """Whether the input is accepted."""
        text, buffers = parse(data)
        try:
            tree = json.loads(text, parse_int=integer)
        except (ValueError, RecursionError):
            return False
        lengths = [buffer.nbytes for buffer in buffers]
        read = self._decoded_within_bounds(tree, buffers, len(data))
        taken, told = self._rust.value(text, lengths)
        # Rust adds optional members, so a tree that is refused here may be accepted as Rust re-encodes it.
        if taken and not isinstance(read, Refused):
            through = decoded(json.loads(told), _values.Decoder(buffers, WORK))
            assert canonical(read) == canonical(through), f"{read!r} is {through!r} behind Rust"
        if isinstance(read, Refused):
            return False
        self._check_written(read)
        return True

    def _decoded_within_bounds(self, tree: object, buffers: list[memoryview], size: int) -> object:
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        decoder = _values.Decoder(buffers, WORK)
        sys.setprofile(count)
        try:
            read = decoded(tree, decoder)
            # Showing a hostile value is one way of accessing it.
            _values.safe_repr(read)
        finally:
            sys.setprofile(None)
        size += sum(buffer.nbytes for buffer in buffers)
        most = FIRST_CALLS + CALLS * (size + min(WORK, WORK - decoder.work))
        assert calls <= most, f"{calls} calls for {size} bytes and {WORK - decoder.work} units of work"
        return read

    def _check_written(self, value: object) -> None:
        tree, buffers = _values.encode(value)
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        text = json.dumps(tree, ensure_ascii=False, allow_nan=False).encode()
        taken, told = self._rust.value(text, [view.nbytes for view in views])
        assert taken, f"{text[:1000]!r} is refused: {told}"
        again = _values.decode(tree, views)
        # A value that cannot be sent, for example a deep one, is sent only as text.
        shown = b'"type": "opaque"' in text
        assert shown or canonical(value) == canonical(again), f"{value!r} came back as {again!r}"


def integer(text: str) -> int | float:
    """Reads `-0` as a float, as Rust does; no encoder writes it."""
    return -0.0 if text == "-0" else int(text)


class Refused:
    def __init__(self, why: str) -> None:
        self.why = why


def decoded(tree: object, decoder: _values.Decoder) -> object:
    try:
        return decoder.decode(tree)
    except ValueError as error:
        return Refused(str(error))


def parse(data: bytes) -> tuple[bytes, list[memoryview]]:
    """Splits an input like the Rust target: a tree, a zero byte, the number of buffers and their lengths."""
    text, _, rest = data.partition(b"\0")
    count = rest[0] % 17 if rest else 0
    lengths = [int.from_bytes(rest[1 + 2 * n : 3 + 2 * n], "little") for n in range(count)]
    _, total = _values.layout(lengths)
    whole = (rest * (total // max(1, len(rest)) + 1))[:total]
    return text, _values.split(memoryview(bytearray(whole)), lengths)


def canonical(value: object) -> object:
    """A form that is equal for equivalent values, and in which NaN equals itself."""
    kind = type(value)
    if isinstance(value, Refused):
        return "refused"
    if kind in (list, tuple):
        return kind, [canonical(item) for item in value]
    if kind in (set, frozenset):
        return kind, sorted(repr(canonical(item)) for item in value)
    if kind is dict:
        return kind, [(canonical(key), canonical(item)) for key, item in value.items()]
    if kind is _values.Table:
        # Written again, it no longer names the package that would have made a frame of it.
        return kind, value.columns, canonical(list(value))
    if kind.__module__ == "pyarrow.lib":
        # The `repr` of an array contains its address.
        return kind, str(getattr(value, "type", "")), str(value)
    if getattr(getattr(value, "dtype", None), "kind", "") == "O" and hasattr(value, "tobytes"):
        return kind, value.shape, canonical(value.tolist())
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return kind, value.dtype.str, value.shape, value.tobytes()
    if hasattr(value, "tobytes") and hasattr(value, "mode"):
        return kind, value.mode, value.size, value.tobytes()
    return kind, repr(value)

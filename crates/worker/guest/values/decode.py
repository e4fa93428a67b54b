"""Decodes a tree to its value. The sender may be hostile: each tree is checked before a value is created, a
buffer is used only once, and no code or name from the sender is run or looked up. A malformed tree raises
`ValueError` and has no other effect."""

from __future__ import annotations

import re
import sys
from operator import eq
from time import thread_time

from . import arrays, frames, standard, tables
from .bounds import (
    DECIMAL_DIGITS,
    I64,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_JSON,
    MAX_NAME,
    MAX_VALUES,
    PACKED_UNIT,
    Opaque,
    cut,
    weight,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    from .kinds import Tree

    T = TypeVar("T")
    Decode = Callable[["Decoder", Tree, int], Any]

HEX = re.compile(r"-?[0-9a-f]+")
# Bytes of a JSON text that are scanned at a time, and packed numbers that are read at a time.
JSON_PART = 1 << 20
PACKED_PART = 1 << 16
# CPU seconds for the hash tables of one message: keys can be made to collide in a table without equal hashes.
# This is ten times the time of ordinary keys.
TABLE_SECONDS = 1.0
KEY_SECONDS = 2e-6
# Maximum bits of the bounds of a range.
MAX_RANGE_BITS = 4096
# Up to this number of keys, quadratic time is small.
FEW_KEYS = 1024


class Decoder:
    """Decodes the values of one message, which share its buffers and a work budget."""

    def __init__(self, buffers: Sequence[memoryview], work: int = MAX_VALUES) -> None:
        self._buffers = buffers
        # Each buffer is read once, so that a value is never larger than its message.
        self._used: set[int] = set()
        self._in_json = False
        self.work = work
        """The remaining work budget."""
        self._json_bytes = 0
        self._table_seconds = 0.0
        self.zones: dict[str, Any] = {}
        """Time zones by name; `None` for a name that is not known here."""
        self.has_long_int = False
        """Whether Python refuses to convert one of the integers to decimal."""
        self.text_bytes = 0
        """The total size of buffers whose contents are shown without a length limit."""
        self.shown = 0
        """The cost of a `repr()` of the library values."""

    def decode(self, tree: Tree) -> Any:
        try:
            return self.value(tree, 1)
        except Exception as error:
            # From a library, an unhashable key, or a number that is too large.
            message = str(error)
            if not isinstance(error, ValueError):
                message = f"a value cannot be created: {type(error).__name__}: {message}"
            # Truncated, because it may quote the sender's data.
            raise ValueError(cut(message, MAX_NAME)) from error

    def spend(self, work: int) -> None:
        """Charges the message's budget for work beyond the size of the current part of the tree."""
        self.work -= work
        if self.work < 0:
            raise ValueError("a message takes too much work to read")

    def value(self, tree: Tree, depth: int) -> Any:
        kind = type(tree)
        if kind is str or kind is float or kind is bool or tree is None:
            return tree
        if kind is int:
            if -I64 <= tree < I64:
                return tree
            raise ValueError("a number of more than 64 bits")
        if depth > MAX_DEPTH:
            raise ValueError("values are nested too deeply")
        if kind is list:
            return [self.value(item, depth + 1) for item in tree]
        if kind is not dict:
            raise ValueError("a tree is not JSON")
        name = tree.get("type")
        decoder = DECODERS.get(name) if type(name) is str else None
        if decoder is None:
            raise ValueError("a value is of an unknown type")
        return decoder(self, tree, depth)

    def field(self, tree: Tree, name: str, kind: type[T]) -> T:
        """Returns a member that must be plain JSON of type `kind`."""
        value = tree.get(name)
        if type(value) is not kind:
            raise ValueError(f"`{name}` of a value of type `{tree['type']}` is not of type {kind.__name__}")
        return value

    def inner(self, tree: Tree, name: str, kind: type[T], depth: int) -> T:
        """Returns a member that must be an encoded value of type `kind`."""
        value = self.value(tree.get(name), depth + 1)
        if type(value) is not kind:
            raise ValueError(f"`{name}` of a value of type `{tree['type']}` is not of type {kind.__name__}")
        return value

    def buffer(self, tree: Tree) -> memoryview:
        index = self.field(tree, "buffer", int)
        if not 0 <= index < len(self._buffers) or index in self._used:
            raise ValueError("a value refers to a missing or already used buffer")
        self._used.add(index)
        return self._buffers[index]

    def text(self, tree: Tree) -> memoryview:
        """Returns a buffer that counts towards `text_bytes`."""
        data = self.buffer(tree)
        self.text_bytes += data.nbytes
        return data

    def items(self, tree: Tree, depth: int) -> list[Any]:
        return [self.value(item, depth + 2) for item in self.field(tree, "items", list)]

    def json(self, tree: Tree, depth: int) -> Any:
        if self._in_json:
            raise ValueError("a tree in a buffer refers to another tree")
        import json

        text = bytes(self.text(tree))
        self._json_bytes += len(text)
        if self._json_bytes > MAX_JSON:
            raise ValueError(f"the trees of a message are over the limit of {MAX_JSON} bytes")
        self.spend(check_json(text, self.work))
        try:
            parsed = json.loads(text.decode("utf-8"), parse_int=_integer, parse_constant=_refuse)
        except RecursionError as error:
            raise ValueError("values are nested too deeply") from error
        self._in_json = True
        try:
            return self.value(parsed, 1)
        finally:
            self._in_json = False

    def table(self, tree: Tree, table: Any, members: list[Any], keys: Sequence[object]) -> Any:
        """Fills a set with these members, or a dict with these pairs. If keys are distinct only for their
        sender, such as members of two enums, returns a placeholder, because no entry may be lost."""
        self.check_keys(keys)
        self.fill(table, members)
        if len(table) == len(members):
            return table
        return Opaque(
            tree["type"],
            f"<{tree['type']} of {len(members)} entries, of which {len(table)} stay distinct as values: "
            "send it as a list>",
        )

    def check_keys(self, keys: Sequence[object]) -> None:
        """Charges the budget for the maximum cost of comparing keys with equal hashes."""
        hashes = sorted(map(hash, keys))
        if not any(map(eq, hashes, hashes[1:])):
            return
        ordered = sorted(keys, key=hash)
        start = 0
        for end in range(1, len(hashes) + 1):
            if end == len(hashes) or hashes[end] != hashes[start]:
                if end - start > 1:
                    self.spend((end - start) * sum(map(weight, ordered[start:end])))
                start = end

    def fill(self, table: Any, members: list[Any]) -> Any:
        """Adds members to a set, or pairs to a dict. Raises `ValueError` if that takes too long."""
        if len(members) <= FEW_KEYS:
            table.update(members)
            return table
        # The more members there are, the longer a single one may take.
        step = 1 + (1 << 24) // len(members)
        for start in range(0, len(members), step):
            begun = thread_time()
            part = members[start : start + step]
            table.update(part)
            taken = thread_time() - begun - len(part) * KEY_SECONDS
            self._table_seconds = max(0.0, self._table_seconds + taken)
            if self._table_seconds > TABLE_SECONDS:
                raise ValueError("the keys of a value collide")
        return table


def check_json(text: bytes, most: int = MAX_VALUES) -> int:
    """Returns the approximate number of values in a text, which bounds the memory and time of reading it.
    Scans each byte once. Raises `ValueError` for a text with more than `most` values."""
    if len(text) > MAX_JSON:
        raise ValueError(f"a JSON text of {len(text)} bytes is over the limit of {MAX_JSON}")
    text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    values = quotes = 0
    for start in range(0, len(text), JSON_PART):
        parts = text[start : start + JSON_PART].split(b'"')
        # After a split at quotes, every other part is inside a string.
        outside = b"".join(parts[quotes % 2 :: 2])
        quotes += len(parts) - 1
        values += sum(map(outside.count, (b",", b"[", b"{", b":")))
        if values > most:
            raise ValueError(f"a JSON text has more than {most} values")
        if quotes > 2 * values + 4:
            raise ValueError("a JSON text has strings with nothing between them")
    return values


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError("a number of more than 64 bits")
    return int(text)


def _refuse(text: str) -> None:
    raise ValueError("a number is not valid JSON")


def _int(decoder: Decoder, tree: Tree, depth: int) -> int:
    text = decoder.inner(tree, "hex", str, depth)
    if len(text) > MAX_DIGITS + 1 or HEX.fullmatch(text) is None:
        raise ValueError("a number is not hexadecimal, or has more than a million bits")
    decoder.has_long_int |= len(text) > DECIMAL_DIGITS
    return int(text, 16)


def _float(decoder: Decoder, tree: Tree, depth: int) -> float:
    text = decoder.field(tree, "text", str)
    if text not in ("nan", "inf", "-inf"):
        raise ValueError("a float in text form is neither NaN nor infinite")
    return float(text)


def _complex(decoder: Decoder, tree: Tree, depth: int) -> complex:
    parts = (decoder.inner(tree, name, float, depth) for name in ("real", "imag"))
    return complex(*parts)


def _text(decoder: Decoder, tree: Tree, depth: int) -> str:
    return str(decoder.text(tree), "utf-8", "surrogatepass")


def _bytes(decoder: Decoder, tree: Tree, depth: int) -> bytes:
    return bytes(decoder.text(tree))


def _bytearray(decoder: Decoder, tree: Tree, depth: int) -> bytearray:
    return bytearray(decoder.text(tree))


def _tuple(decoder: Decoder, tree: Tree, depth: int) -> tuple[Any, ...]:
    return tuple(decoder.items(tree, depth))


def _set(decoder: Decoder, tree: Tree, depth: int) -> Any:
    members = decoder.items(tree, depth)
    return decoder.table(tree, set(), members, members)


def _frozenset(decoder: Decoder, tree: Tree, depth: int) -> Any:
    found = _set(decoder, tree, depth)
    return frozenset(found) if type(found) is set else found


def _pairs(decoder: Decoder, tree: Tree, name: str, depth: int) -> list[tuple[Any, Any]]:
    pairs = []
    for pair in decoder.field(tree, name, list):
        if type(pair) is not list or len(pair) != 2:
            raise ValueError(f"`{name}` of a value of type `{tree['type']}` are not pairs")
        key, value = pair
        pairs.append((decoder.value(key, depth + 3), decoder.value(value, depth + 3)))
    return pairs


def _dict(decoder: Decoder, tree: Tree, depth: int) -> Any:
    pairs = _pairs(decoder, tree, "items", depth)
    return decoder.table(tree, {}, pairs, [key for key, _ in pairs])


def _dataclass(decoder: Decoder, tree: Tree, depth: int) -> dict[str, Any]:
    pairs = _pairs(decoder, tree, "fields", depth)
    if not all(type(name) is str for name, _ in pairs):
        raise ValueError("the name of a field is not text")
    return dict(pairs)


def _namedtuple(decoder: Decoder, tree: Tree, depth: int) -> tuple[Any, ...]:
    return tuple(value for _, value in _pairs(decoder, tree, "fields", depth))


def _packed(decoder: Decoder, tree: Tree, depth: int) -> list[Any]:
    code = {"i8": "q", "f8": "d"}.get(decoder.field(tree, "format", str))
    data = decoder.text(tree)
    if code is None or data.nbytes % 8:
        raise ValueError("packed numbers are of an unknown format")
    decoder.spend(data.nbytes // (8 * PACKED_UNIT))
    from array import array

    numbers: Any = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    # In parts, so that other threads can run in between.
    found: list[Any] = []
    for start in range(0, len(numbers), PACKED_PART):
        found += numbers[start : start + PACKED_PART]
    return found


def _range(decoder: Decoder, tree: Tree, depth: int) -> range:
    ends = [decoder.inner(tree, name, int, depth) for name in ("start", "stop", "step")]
    # The length of a range is a division, which takes time quadratic in the digits of its bounds.
    if max(end.bit_length() for end in ends) > MAX_RANGE_BITS:
        raise ValueError("the bounds of a range are too large")
    return range(*ends)


def _enum(decoder: Decoder, tree: Tree, depth: int) -> Any:
    return decoder.value(tree.get("value"), depth + 1)


def _opaque(decoder: Decoder, tree: Tree, depth: int) -> Any:
    shown = Opaque(decoder.field(tree, "name", str), decoder.field(tree, "repr", str))
    parts = tree.get("parts")
    return shown if parts is None else tables.read_scalar(decoder, shown, parts, depth + 1)


DECODERS: dict[str, Decode] = {
    "int": _int,
    "float": _float,
    "complex": _complex,
    "text": _text,
    "bytes": _bytes,
    "bytearray": _bytearray,
    "tuple": _tuple,
    "set": _set,
    "frozenset": _frozenset,
    "dict": _dict,
    "dataclass": _dataclass,
    "namedtuple": _namedtuple,
    "packed": _packed,
    "range": _range,
    "enum": _enum,
    "opaque": _opaque,
    "json": Decoder.json,
    **standard.DECODERS,
    **arrays.DECODERS,
    **frames.DECODERS,
}

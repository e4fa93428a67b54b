"""From a tree to its value. The other side may be hostile: each tree is checked before anything is
made of it, a buffer is used once, nothing of the sender's is run or looked up, and all that a bad
tree causes is a `ValueError`."""

from __future__ import annotations

import re
import sys

from . import arrays, standard, tables
from .bounds import I64, MAX_DEPTH, MAX_JSON, MAX_VALUES, Opaque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeVar

    from .kinds import Tree

    T = TypeVar("T")
    Decode = Callable[["Decoder", Tree, int], Any]

HEX = re.compile(r"-?[0-9a-f]+")
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
# So many equal hashes do not happen by chance: each costs a comparison with all others.
MAX_COLLISIONS = 1000


class Decoder:
    """Decodes the values of one message, which share its buffers."""

    def __init__(self, buffers: Sequence[memoryview]) -> None:
        self._buffers = buffers
        # Each is read once: what is made of a tree is never larger than what was sent.
        self._used: set[int] = set()
        self._in_json = False

    def decode(self, tree: Tree) -> Any:
        try:
            return self.value(tree, 1)
        except ValueError:
            raise
        except Exception as error:
            # Of a library, of a value that is no key, of a number that is too large.
            raise ValueError(f"a value cannot be made: {type(error).__name__}: {error}") from error

    def value(self, tree: Tree, depth: int) -> Any:
        kind = type(tree)
        if kind is str or kind is float or kind is bool or tree is None:
            return tree
        if kind is int:
            if -I64 <= tree < I64:
                return tree
            raise ValueError("a number of more than 64 bits")
        if depth > MAX_DEPTH:
            raise ValueError("values are too deep inside each other")
        if kind is list:
            return [self.value(item, depth + 1) for item in tree]
        if kind is not dict:
            raise ValueError("a tree is not made of JSON")
        name = tree.get("type")
        decoder = DECODERS.get(name) if type(name) is str else None
        if decoder is None:
            raise ValueError("a value is of no known type")
        return decoder(self, tree, depth)

    def field(self, tree: Tree, name: str, kind: type[T]) -> T:
        """A member that is plain JSON."""
        value = tree.get(name)
        if type(value) is not kind:
            raise ValueError(f"`{name}` of a value of type `{tree['type']}` is no {kind.__name__}")
        return value

    def inner(self, tree: Tree, name: str, kind: type[T], depth: int) -> T:
        """A member that is a value of this type."""
        value = self.value(tree.get(name), depth + 1)
        if type(value) is not kind:
            raise ValueError(f"`{name}` of a value of type `{tree['type']}` is no {kind.__name__}")
        return value

    def buffer(self, tree: Tree) -> memoryview:
        index = self.field(tree, "buffer", int)
        if not 0 <= index < len(self._buffers) or index in self._used:
            raise ValueError("a value refers to a buffer that is not there for it")
        self._used.add(index)
        return self._buffers[index]

    def items(self, tree: Tree, depth: int) -> list[Any]:
        return [self.value(item, depth + 2) for item in self.field(tree, "items", list)]

    def json(self, tree: Tree, depth: int) -> Any:
        if self._in_json:
            raise ValueError("a tree in a buffer refers to another one")
        import json

        text = bytes(self.buffer(tree))
        check_json(text)
        try:
            parsed = json.loads(text.decode("utf-8"), parse_int=_integer, parse_constant=_refuse)
        except RecursionError as error:
            raise ValueError("values are too deep inside each other") from error
        self._in_json = True
        try:
            return self.value(parsed, 1)
        finally:
            self._in_json = False


def check_json(text: bytes) -> None:
    """Bounds the memory that reading a text needs, before it is read."""
    if len(text) > MAX_JSON:
        raise ValueError(f"a tree of {len(text)} bytes is over the limit of {MAX_JSON}")
    if _count_values(text) > MAX_VALUES and _count_values(STRING.sub(b'""', text)) > MAX_VALUES:
        raise ValueError(f"a tree has more than {MAX_VALUES} values")


def _count_values(text: bytes) -> int:
    return sum(map(text.count, (b",", b"[", b"{", b":")))


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError("a number of more than 64 bits")
    return int(text)


def _refuse(text: str) -> None:
    raise ValueError("a number is not written as JSON")


def check_hashes(keys: Iterable[object]) -> None:
    """Refuses keys that were made to collide, with which a dict takes time by their square."""
    counts: dict[int, int] = {}
    for key in keys:
        found = hash(key)
        count = counts.get(found, 0) + 1
        if count > MAX_COLLISIONS:
            raise ValueError("the keys of a value collide")
        counts[found] = count


def _int(decoder: Decoder, tree: Tree, depth: int) -> int:
    text = decoder.inner(tree, "hex", str, depth)
    if HEX.fullmatch(text) is None:
        raise ValueError("a number is not hexadecimal")
    return int(text, 16)


def _float(decoder: Decoder, tree: Tree, depth: int) -> float:
    text = decoder.field(tree, "text", str)
    if text not in ("nan", "inf", "-inf"):
        raise ValueError("a float is not what only a text can write")
    return float(text)


def _complex(decoder: Decoder, tree: Tree, depth: int) -> complex:
    parts = (decoder.inner(tree, name, float, depth) for name in ("real", "imag"))
    return complex(*parts)


def _text(decoder: Decoder, tree: Tree, depth: int) -> str:
    return str(decoder.buffer(tree), "utf-8", "surrogatepass")


def _bytes(decoder: Decoder, tree: Tree, depth: int) -> bytes:
    return bytes(decoder.buffer(tree))


def _bytearray(decoder: Decoder, tree: Tree, depth: int) -> bytearray:
    return bytearray(decoder.buffer(tree))


def _tuple(decoder: Decoder, tree: Tree, depth: int) -> tuple[Any, ...]:
    return tuple(decoder.items(tree, depth))


def _set(decoder: Decoder, tree: Tree, depth: int) -> set[Any]:
    members = decoder.items(tree, depth)
    check_hashes(members)
    return set(members)


def _frozenset(decoder: Decoder, tree: Tree, depth: int) -> frozenset[Any]:
    return frozenset(_set(decoder, tree, depth))


def _pairs(decoder: Decoder, tree: Tree, name: str, depth: int) -> list[tuple[Any, Any]]:
    pairs = []
    for pair in decoder.field(tree, name, list):
        if type(pair) is not list or len(pair) != 2:
            raise ValueError(f"`{name}` of a value of type `{tree['type']}` are no pairs")
        key, value = pair
        pairs.append((decoder.value(key, depth + 3), decoder.value(value, depth + 3)))
    return pairs


def _dict(decoder: Decoder, tree: Tree, depth: int) -> dict[Any, Any]:
    pairs = _pairs(decoder, tree, "items", depth)
    check_hashes(key for key, _ in pairs)
    return dict(pairs)


def _dataclass(decoder: Decoder, tree: Tree, depth: int) -> dict[str, Any]:
    pairs = _pairs(decoder, tree, "fields", depth)
    if not all(type(name) is str for name, _ in pairs):
        raise ValueError("the name of a field is no text")
    return dict(pairs)


def _namedtuple(decoder: Decoder, tree: Tree, depth: int) -> tuple[Any, ...]:
    return tuple(value for _, value in _pairs(decoder, tree, "fields", depth))


def _packed(decoder: Decoder, tree: Tree, depth: int) -> list[Any]:
    code = {"i8": "q", "f8": "d"}.get(decoder.field(tree, "format", str))
    data = decoder.buffer(tree)
    if code is None or data.nbytes % 8:
        raise ValueError("packed numbers are of no known format")
    from array import array

    numbers: Any = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    found: list[Any] = numbers.tolist()
    return found


def _range(decoder: Decoder, tree: Tree, depth: int) -> range:
    return range(*(decoder.inner(tree, name, int, depth) for name in ("start", "stop", "step")))


def _enum(decoder: Decoder, tree: Tree, depth: int) -> Any:
    return decoder.value(tree.get("value"), depth + 1)


def _opaque(decoder: Decoder, tree: Tree, depth: int) -> Opaque:
    return Opaque(decoder.field(tree, "name", str), decoder.field(tree, "repr", str))


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
    **tables.DECODERS,
}

"""Defines the types that can be transferred, and the encoding of each.

Types that are not builtin are looked up by name in the loaded modules. Encoding imports nothing: a value
exists only if the module of its class is loaded."""

from __future__ import annotations

import sys

from . import arrays, arrow_tables, polars_frames, standard, tables
from .bounds import (
    I64,
    MAX_DIGITS,
    MAX_NAME,
    PACKED,
    PACKED_UNIT,
    NotSupported,
    Opaque,
    class_name,
    class_path,
    cut,
)
from .table import Table, table_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .encode import Encoder

    Tree = Any
    # Arguments: the encoder, the value, its depth, and whether it must be hashable when decoded.
    Encode = Callable[[Encoder, Any, int, bool], Tree]


# A subclass of a builtin type is transferred as its base. The base's methods are called, so that no code of
# the subclass runs.


def _int(encoder: Encoder, value: int, depth: int, key: bool) -> Tree:
    value = int.__add__(value, 0)
    if -I64 <= value < I64:
        return value
    if value.bit_length() > 4 * MAX_DIGITS:
        # The `repr` would take too long, and cannot be interrupted.
        text = f"<int of {value.bit_length()} bits>"
        return {"type": "opaque", "name": "int", "repr": text}
    return {"type": "int", "hex": encoder.text(f"{value:x}", MAX_DIGITS + 1)}


def _float(encoder: Encoder, value: float, depth: int, key: bool) -> Tree:
    value = float.__mul__(value, 1.0)
    return value if value - value == 0 else {"type": "float", "text": repr(value)}


def _complex(encoder: Encoder, value: complex, depth: int, key: bool) -> Tree:
    real, imag = complex.real.__get__(value), complex.imag.__get__(value)
    parts = (_float(encoder, part, depth, key) for part in (real, imag))
    return dict(zip(("type", "real", "imag"), ("complex", *parts)))


def _str(encoder: Encoder, value: str, depth: int, key: bool) -> Tree:
    return encoder.text(str.__str__(value))


def _bytes(encoder: Encoder, value: bytes, depth: int, key: bool) -> Tree:
    return {"type": "bytes", "buffer": encoder.buffer(bytes.__getitem__(value, slice(None)))}


def _bytearray(encoder: Encoder, value: bytearray, depth: int, key: bool) -> Tree:
    encoder.room_for(bytearray.__len__(value))
    return {
        "type": "bytearray",
        "buffer": encoder.buffer(bytearray.__getitem__(value, slice(None))),
    }


def _memoryview(encoder: Encoder, value: memoryview, depth: int, key: bool) -> Tree:
    encoder.room_for(value.nbytes)
    return {"type": "bytes", "buffer": encoder.buffer(value.tobytes())}


def _list(encoder: Encoder, value: list[Any], depth: int, key: bool) -> Tree:
    value = list.copy(value)
    return _packed(encoder, value) or encoder.items(value, depth + 1, key)


def _listed(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    return _list(encoder, list(value), depth, key)


def _packed(encoder: Encoder, value: list[Any]) -> Tree:
    if len(value) < PACKED or type(value[0]) not in (int, float):
        return None
    kinds = set(map(type, value))
    if len(kinds) != 1:
        return None
    encoder.room_for(8 * len(value))
    from array import array

    code = "q" if type(value[0]) is int else "d"
    try:
        numbers = array(code, value)
    except OverflowError:
        return None
    if sys.byteorder == "big":
        numbers.byteswap()
    encoder.spend(len(value) // PACKED_UNIT)
    name = "i8" if code == "q" else "f8"
    return {
        "type": "packed",
        "format": name,
        "buffer": encoder.buffer(memoryview(numbers).cast("B")),
    }


def _tuple(encoder: Encoder, value: tuple[Any, ...], depth: int, key: bool) -> Tree:
    return {"type": "tuple", "items": encoder.items(tuple.__iter__(value), depth + 2, key)}


def _set(encoder: Encoder, value: set[Any], depth: int, key: bool) -> Tree:
    members = list(set.__iter__(value))
    return {"type": "set", "items": encoder.items(members, depth + 2, True)}


def _frozenset(encoder: Encoder, value: frozenset[Any], depth: int, key: bool) -> Tree:
    members = frozenset.__iter__(value)
    return {"type": "frozenset", "items": encoder.items(members, depth + 2, True)}


def _dict(encoder: Encoder, value: dict[Any, Any], depth: int, key: bool) -> Tree:
    collections = sys.modules.get("collections")
    ordered = getattr(collections, "OrderedDict", None)
    # `OrderedDict` keeps an order separate from that of `dict`.
    base: Any = dict
    if type(ordered) is type and issubclass(type(value), ordered):
        base = ordered
    return {"type": "dict", "items": encoder.pairs(list(base.items(value)), depth + 3)}


def _range(encoder: Encoder, value: range, depth: int, key: bool) -> Tree:
    ends = (value.start, value.stop, value.step)
    trees = (encoder.tree(end, depth + 1, key) for end in ends)
    return dict(zip(("type", "start", "stop", "step"), ("range", *trees)))


def _opaque(encoder: Encoder, value: Opaque, depth: int, key: bool) -> Tree:
    return encoder.opaque(value)


# Types by declaration of the class: an enum, a dataclass or a named tuple.


def _enum(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    name = cut(f"{type(value).__qualname__}.{value.name}", MAX_NAME)
    return {"type": "enum", "name": name, "value": encoder.tree(value.value, depth + 1, key)}


def _dataclass(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    fields = sys.modules["dataclasses"].fields(value)
    pairs = [(field.name, getattr(value, field.name)) for field in fields]
    return _record(encoder, "dataclass", value, pairs, depth, key)


def _namedtuple(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    pairs = list(zip(type(value)._fields, tuple.__iter__(value)))
    if len(pairs) != tuple.__len__(value):
        return _tuple(encoder, value, depth, key)
    return _record(encoder, "namedtuple", value, pairs, depth, key)


def _iterator(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    raise NotSupported("an iterator: pass list(...) of it")


def _record(
    encoder: Encoder, kind: str, value: object, pairs: list[tuple[str, Any]], depth: int, key: bool
) -> Tree:
    fields = []
    for name, part in pairs:
        if type(name) is not str:
            raise TypeError("a field without a name")
        fields.append([cut(name, MAX_NAME), encoder.tree(part, depth + 3, key)])
    return {"type": kind, "name": class_name(value).rpartition(".")[2], "fields": fields}


# The types of `keys()`, `values()` and `items()` of a `dict`.
VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
BUILTIN: dict[type, Encode] = {
    int: _int,
    float: _float,
    complex: _complex,
    str: _str,
    bytes: _bytes,
    bytearray: _bytearray,
    memoryview: _memoryview,
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _frozenset,
    dict: _dict,
    range: _range,
    Opaque: _opaque,
    Table: table_tree,
    **dict.fromkeys(VIEWS, _listed),
}
# Types that can contain themselves or their containers.
CONTAINERS = {_list, _listed, _tuple, _set, _frozenset, _dict, _enum, _dataclass, _namedtuple}
UNHASHABLE = {_list, _listed, _bytearray, _set, _dict, _dataclass, table_tree, *arrays.UNHASHABLE, *tables.UNHASHABLE}

# Types of modules that may not be loaded, by name. Subclasses do not match.
NAMED: dict[str, Encode] = {
    "collections.deque": _listed,
    **standard.ENCODERS,
    **arrays.ENCODERS,
    **tables.ENCODERS,
    **polars_frames.ENCODERS,
    **arrow_tables.ENCODERS,
}
UNHASHABLE |= {*polars_frames.ENCODERS.values(), *arrow_tables.UNHASHABLE}


# The modules with the encoders of numpy, pandas, Pillow and similar libraries.
LIBRARIES = {module.__name__ for module in (arrays, tables, polars_frames, arrow_tables)}


def is_of_library(encoder: Encode | None) -> bool:
    return encoder is not None and encoder.__module__ in LIBRARIES


def is_exact(kind: type) -> bool:
    """Returns whether the decoded value of a transferable type is of that type and has the same `repr()`."""
    if kind in BUILTIN:
        return kind is not memoryview and kind not in VIEWS
    return ".".join(class_path(kind)) in standard.ENCODERS


def encoder_of(kind: type) -> Encode | None:
    known = BUILTIN.get(kind)
    if known is not None:
        return known
    try:
        return _named(kind) or _declared(kind) or _inherited(kind)
    except KeyboardInterrupt:
        raise
    except BaseException:
        # A metaclass may make the lookup raise.
        return None


def _named(kind: type) -> Encode | None:
    module, name = class_path(kind)
    encoder = NAMED.get(f"{module}.{name}")
    if encoder is not None and getattr(sys.modules.get(module), name, None) is kind:
        return encoder
    return arrays.encoder_of(kind) or tables.encoder_of(kind) or arrow_tables.encoder_of(kind)


def _declared(kind: type) -> Encode | None:
    enum = sys.modules.get("enum")
    if enum is not None and issubclass(kind, enum.Enum):
        return _enum
    if "dataclasses" in sys.modules and type(getattr(kind, "__dataclass_fields__", None)) is dict:
        return _dataclass
    if issubclass(kind, tuple) and type(getattr(kind, "_fields", None)) is tuple:
        return _namedtuple
    return None


def _inherited(kind: type) -> Encode | None:
    for base, encoder in BUILTIN.items():
        if issubclass(kind, base):
            return encoder
    return standard.encoder_of(kind) or (_iterator if hasattr(kind, "__next__") else None)

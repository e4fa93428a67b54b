"""Encodes Arrow's tables and arrays, and creates them from verified columns. columns.py defines the format in
which they are transferred. Encoding imports only modules that `pyarrow` itself imports."""

from __future__ import annotations

import sys

from . import columns
from .bounds import NotSupported, library
from .columns import BLOBS, DECIMAL, FIXED, TEXTS, TIMED, Column

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .decode import Decoder
    from .encode import Encoder
    from .kinds import Encode, Tree

# Arrow's own names of its types.
NAMES = {"float16": "halffloat", "float32": "float", "float64": "double", "date": "date32[day]"}
NAMES = {name: NAMES.get(name, name) for name in (*FIXED, *TEXTS, *BLOBS, "null")}
SCHEMAS = {name: kind for kind, name in NAMES.items()}
# The constructors of types that have another name.
MAKERS = {"bool": "bool_", "date": "date32", "list": "list_", "large_list": "large_list"}


def _table(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    names = list(value.schema.names)
    data = [
        column_tree(encoder, column, depth + 2, f"column {name!r}") for name, column in zip(names, value.columns)
    ]
    return columns.frame_tree(encoder, "arrow", names, data, value.num_rows)


def _array(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    return columns.series_tree(
        encoder, "arrow", None, column_tree(encoder, value, depth + 1, "the array"), len(value)
    )


def _scalar(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    return encoder.tree(value.as_py(), depth, key)


def schema_of(kind: Any, whose: str, nested: bool = False) -> Any:
    types, text = sys.modules["pyarrow"].types, str(kind)
    if text in SCHEMAS:
        return SCHEMAS[text]
    for test, word in ((types.is_timestamp, "datetime"), (types.is_duration, "duration"), (types.is_time, "time")):
        if test(kind) and not (nested and kind.unit == "ns"):
            zone = getattr(kind, "tz", None)
            return f"{word}[{kind.unit}{f', {zone}' if zone else ''}]"
    if types.is_decimal128(kind):
        return f"decimal[{kind.precision}, {kind.scale}]"
    if types.is_list(kind) or types.is_large_list(kind):
        word = "list" if types.is_list(kind) else "large_list"
        return [word, schema_of(kind.value_type, whose, True)]
    if types.is_fixed_size_list(kind):
        return ["array", kind.list_size, schema_of(kind.value_type, whose, True)]
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return ["struct", [[field.name, schema_of(field.type, whose, True)] for field in fields]]
    if types.is_dictionary(kind) and not nested:
        return "category"
    raise NotSupported(f"{whose} is of type {text}, which cannot be transferred: convert it first")


def column_tree(encoder: Encoder, value: Any, depth: int, whose: str) -> Tree:
    """Returns the tree of an array. `whose` names it in errors."""
    encoder.count(10)
    pyarrow = sys.modules["pyarrow"]
    if isinstance(value, pyarrow.ChunkedArray):
        value = value.combine_chunks()
        if isinstance(value, pyarrow.ChunkedArray):
            value = value.chunk(0) if value.num_chunks else pyarrow.array([], value.type)
    schema = schema_of(value.type, whose)
    if schema == "category":
        codes = value.indices.cast(pyarrow.int32()).fill_null(-1)
        return {
            "dtype": "category",
            "values": columns.number_tree(encoder, "<i4", _bytes(codes, 4)),
            "categories": column_tree(encoder, value.dictionary, depth + 1, whose),
            "ordered": bool(value.type.ordered),
        }
    if schema in TEXTS or schema in BLOBS:
        wide = value.cast(pyarrow.large_utf8() if schema in TEXTS else pyarrow.large_binary())
        lengths = library("pyarrow.compute").binary_length(wide).cast(pyarrow.int32()).fill_null(-1)
        if wide.null_count:
            wide = wide.fill_null("" if schema in TEXTS else b"")
        ends = _bytes(wide, 8, 1).cast("q") if len(wide) else [0, 0]
        data = memoryview(wide.buffers()[2] or b"")[ends[0] : ends[-1]]
        tree = columns.texts_tree(encoder, _bytes(lengths, 4), data)
        return {"dtype": schema, "values": tree}
    timed = TIMED.fullmatch(schema) if type(schema) is str else None
    if type(schema) is not str or not (timed or schema in FIXED):
        return columns.listed_tree(encoder, schema, value.to_pylist(), depth)
    dtype, width = FIXED.get(schema) or columns.bytes_of(timed), value.type.bit_width // 8
    if schema == "bool":
        plain, width = value.cast(pyarrow.uint8()), 1
    else:
        # As integers, because missing elements are filled with zeros.
        plain = value.view(f"int{8 * width}")
    if value.null_count:
        plain = plain.fill_null(0)
    if timed and width == 4:
        plain, width = plain.cast(pyarrow.int64()), 8
    tree = {"dtype": schema, "values": columns.number_tree(encoder, dtype, _bytes(plain, width))}
    if value.null_count:
        missing = value.is_null().cast(pyarrow.uint8())
        tree["mask"] = columns.number_tree(encoder, "|b1", _bytes(missing, 1))
    return tree


def _bytes(value: Any, width: int, more: int = 0) -> memoryview:
    """Returns the bytes of an array's elements, which may be a slice of a larger array, or of its offsets."""
    data = value.buffers()[1]
    start, end = value.offset, value.offset + len(value) + more
    return memoryview(data or b"").cast("B")[start * width : end * width]


def _type(decoder: Decoder, pyarrow: Any, schema: Any) -> Any:
    if type(schema) is list:
        if schema[0] == "struct":
            return pyarrow.struct(
                [pyarrow.field(name, _type(decoder, pyarrow, part)) for name, part in schema[1]]
            )
        inner = _type(decoder, pyarrow, schema[-1])
        if schema[0] == "array":
            return pyarrow.list_(inner, schema[1])
        return getattr(pyarrow, MAKERS[schema[0]])(inner)
    timed, decimal = TIMED.fullmatch(schema), DECIMAL.fullmatch(schema)
    if decimal is not None:
        return pyarrow.decimal128(int(decimal[1]), int(decimal[2]))
    if timed is None:
        return getattr(pyarrow, MAKERS.get(schema, schema))()
    if timed[1] == "time":
        return getattr(pyarrow, "time32" if timed[2] in ("s", "ms") else "time64")(timed[2])
    if timed[1] == "duration":
        return pyarrow.duration(timed[2])
    return pyarrow.timestamp(timed[2], timed[3] and columns.zone_name(decoder, timed[3]))


def make_array(decoder: Decoder, pyarrow: Any, column: Column) -> Any:
    found = _made(decoder, pyarrow, column)
    # Checks texts and their offsets, which the buffers alone do not guarantee.
    found.validate(full=True)
    return found


def _made(decoder: Decoder, pyarrow: Any, column: Column) -> Any:
    schema, count = column.schema, column.length
    if schema in ("category", "enum"):
        labels = make_array(decoder, pyarrow, column.categories)
        codes = _numbers(pyarrow, pyarrow.int32(), column.values, count)
        codes = library("pyarrow.compute").if_else(
            library("pyarrow.compute").less(codes, 0), pyarrow.scalar(None, pyarrow.int32()), codes
        )
        return pyarrow.DictionaryArray.from_arrays(codes, labels, ordered=column.ordered)
    kind = _type(decoder, pyarrow, schema)
    if schema in TEXTS or schema in BLOBS:
        wide = pyarrow.large_utf8() if schema in TEXTS else pyarrow.large_binary()
        known = bytes(length >= 0 for length in column.lengths) if count else b""
        parts = [_bits(pyarrow, known) if 0 in known else None]
        parts += [pyarrow.py_buffer(column.offsets), pyarrow.py_buffer(column.values)]
        found = pyarrow.Array.from_buffers(wide, count, parts)
        found.validate(full=True)
        return found if kind == wide else found.cast(kind)
    if type(schema) is list or not (schema in FIXED or TIMED.fullmatch(schema)):
        return pyarrow.array(column.values, kind)
    missing = None
    if column.mask is not None:
        missing = _bits(pyarrow, bytes(column.mask).translate(b"\1\0" + bytes(254)))
    if schema == "bool":
        data = _bits(pyarrow, column.values)
    elif kind.bit_width == 32 and TIMED.fullmatch(schema):
        # Times in seconds and milliseconds, which are transferred as eight bytes.
        short = _numbers(pyarrow, pyarrow.int64(), column.values, count).cast(pyarrow.int32())
        data = short.buffers()[1]
    else:
        data = pyarrow.py_buffer(column.values)
    return pyarrow.Array.from_buffers(kind, count, [missing, data])


def _numbers(pyarrow: Any, kind: Any, data: Any, count: int) -> Any:
    return pyarrow.Array.from_buffers(kind, count, [None, pyarrow.py_buffer(data)])


def _bits(pyarrow: Any, data: Any) -> Any:
    """Returns a bitmap, from bytes of 0 and 1."""
    return _numbers(pyarrow, pyarrow.uint8(), data, len(data)).cast(pyarrow.bool_()).buffers()[1]


def make_table(decoder: Decoder, pyarrow: Any, names: list[str], data: list[Column]) -> Any:
    return pyarrow.Table.from_arrays([make_array(decoder, pyarrow, one) for one in data], names)


ENCODERS: dict[str, Encode] = {
    "pyarrow.lib.Table": _table,
    "pyarrow.lib.RecordBatch": _table,
    "pyarrow.lib.ChunkedArray": _array,
}
UNHASHABLE: set[Encode] = {_table, _array}


def encoder_of(kind: type) -> Encode | None:
    """Returns the encoder of types that have a class for each kind."""
    pyarrow = sys.modules.get("pyarrow")
    for base, encoder in (("Array", _array), ("Scalar", _scalar)):
        known = getattr(pyarrow, base, None)
        if isinstance(known, type) and issubclass(kind, known):
            return encoder
    return None

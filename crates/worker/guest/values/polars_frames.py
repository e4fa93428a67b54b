"""Encodes polars' frames and series, and creates them from verified columns. columns.py defines the format in
which they are transferred. Encoding imports nothing."""

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

# Texts to create at a time, so that they do not all exist twice.
CHUNK = 1 << 16
# The names of polars' types.
POLARS = {"bool": "Boolean", "string": "String", "binary": "Binary", "date": "Date", "null": "Null"}
POLARS.update({name: name.capitalize() for name in FIXED if name not in POLARS})
POLARS.update({name: f"UInt{name[4:]}" for name in FIXED if name.startswith("uint")})
SCHEMAS = {name: kind for kind, name in POLARS.items()}


def _frame(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    data = [_column(encoder, column, depth + 2) for column in value.get_columns()]
    return columns.frame_tree(encoder, "polars", list(value.columns), data, value.height)


def _series(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    data = _column(encoder, value, depth + 1)
    return columns.series_tree(encoder, "polars", value.name, data, len(value))


def schema_of(dtype: Any, name: str, nested: bool = False) -> Any:
    kind = type(dtype).__name__ if not isinstance(dtype, type) else dtype.__name__
    if kind in SCHEMAS and hasattr(sys.modules["polars"], kind):
        return SCHEMAS[kind]
    if kind in ("Datetime", "Duration") and not (nested and dtype.time_unit == "ns"):
        zone = getattr(dtype, "time_zone", None)
        return f"{kind.lower()}[{dtype.time_unit}{f', {zone}' if zone else ''}]"
    if kind == "Time":
        return "time[us]" if nested else "time[ns]"
    if kind == "Decimal":
        return f"decimal[{dtype.precision or 38}, {dtype.scale}]"
    if kind == "List":
        return ["list", schema_of(dtype.inner, name, True)]
    if kind == "Array":
        return ["array", dtype.size, schema_of(dtype.inner, name, True)]
    if kind == "Struct":
        fields = [[field.name, schema_of(field.dtype, name, True)] for field in dtype.fields]
        return ["struct", fields]
    if kind in ("Categorical", "Enum") and not nested:
        return "category" if kind == "Categorical" else "enum"
    raise NotSupported(f"column {name!r} is of type {dtype}, which cannot be transferred: convert it first")


def _column(encoder: Encoder, series: Any, depth: int) -> Tree:
    encoder.count(10)
    schema, polars = schema_of(series.dtype, series.name), sys.modules["polars"]
    if schema in ("category", "enum"):
        texts = series.cast(polars.String)
        if schema == "enum":
            labels = series.dtype.categories
        else:
            labels = texts.drop_nulls().unique(maintain_order=True)
        codes = texts.cast(polars.Enum(labels)).to_physical().cast(polars.Int32).fill_null(-1)
        return {
            "dtype": schema,
            "values": columns.number_tree(encoder, "<i4", _bytes(codes, "i")),
            "categories": _column(encoder, labels, depth + 1),
            "ordered": schema == "enum",
        }
    if schema in ("string", "binary"):
        sizes = series.str.len_bytes() if schema == "string" else series.bin.size()
        lengths = sizes.cast(polars.Int32).fill_null(-1)
        parts = (series[at : at + CHUNK].drop_nulls() for at in range(0, len(series), CHUNK))
        if schema == "string":
            data = b"".join(["".join(part.to_list()).encode() for part in parts])
        else:
            data = b"".join([b"".join(part.to_list()) for part in parts])
        tree = columns.texts_tree(encoder, _bytes(lengths, "i"), data)
        return {"dtype": schema, "values": tree}
    timed = TIMED.fullmatch(schema) if type(schema) is str else None
    if type(schema) is not str or not (timed or schema in FIXED):
        return columns.listed_tree(encoder, schema, series.to_list(), depth)
    dtype = FIXED.get(schema) or columns.bytes_of(timed)
    plain = series.cast(polars.UInt8) if schema == "bool" else series.to_physical()
    code = columns.ITEMS.get(dtype, "q")
    values = columns.number_tree(encoder, dtype, _bytes(plain.fill_null(0), code))
    tree = {"dtype": schema, "values": values}
    if series.null_count():
        missing = _bytes(series.is_null().cast(polars.UInt8), "B")
        tree["mask"] = columns.number_tree(encoder, "|b1", missing)
    return tree


def _bytes(series: Any, code: str) -> Any:
    """Returns the bytes of a numeric series without missing elements."""
    try:
        return series.to_numpy().data
    except ImportError:
        # polars does not depend on numpy.
        from array import array

        return memoryview(array(code, series.to_list()))


def _type(decoder: Decoder, polars: Any, schema: Any) -> Any:
    if type(schema) is list:
        if schema[0] == "struct":
            fields = {name: _type(decoder, polars, part) for name, part in schema[1]}
            return polars.Struct(fields)
        inner = _type(decoder, polars, schema[-1])
        return polars.Array(inner, schema[1]) if schema[0] == "array" else polars.List(inner)
    timed, decimal = TIMED.fullmatch(schema), DECIMAL.fullmatch(schema)
    if decimal is not None:
        return polars.Decimal(int(decimal[1]), int(decimal[2]))
    if timed is None:
        return getattr(polars, POLARS[schema])
    if timed[1] == "time":
        return polars.Time
    if timed[1] == "duration":
        return polars.Duration(timed[2])
    zone = None if timed[3] is None else columns.zone_name(decoder, timed[3])
    return polars.Datetime(timed[2], zone)


def make_series(decoder: Decoder, polars: Any, name: str, column: Column) -> Any:
    schema = column.schema
    if schema in ("category", "enum"):
        labels = make_series(decoder, polars, "", column.categories)
        codes = _numbers(decoder, polars, column.values, "<i4", polars.Int32)
        known = polars.select(polars.when(codes >= 0).then(codes)).to_series()
        found = labels.gather(known.cast(polars.UInt32))
        kind = polars.Enum(labels) if schema == "enum" else polars.Categorical
        return found.cast(kind).rename(name)
    kind = _type(decoder, polars, schema)
    if schema in TEXTS or schema in BLOBS:
        decoder.spend(column.length // columns.LENGTHS)
        starts = range(0, max(column.length, 1), CHUNK)
        parts = [column.texts(at, min(at + CHUNK, column.length)) for at in starts]
        return polars.concat([polars.Series(name, part, dtype=kind) for part in parts])
    if type(schema) is list or not (schema in FIXED or TIMED.fullmatch(schema)):
        return polars.Series(name, column.values, dtype=kind)
    plain = {"bool": "uint8", "date": "int32"}.get(schema, schema if schema in FIXED else "int64")
    dtype = FIXED.get(plain, "<i8")
    found = _numbers(decoder, polars, column.values, dtype, getattr(polars, POLARS[plain]))
    found = found.cast(kind).rename(name)
    if column.mask is None:
        return found
    missing = _numbers(decoder, polars, column.mask, "|u1", polars.UInt8).cast(polars.Boolean)
    return polars.select(polars.when(missing).then(None).otherwise(found).alias(name)).to_series()


def _numbers(decoder: Decoder, polars: Any, data: Any, dtype: str, kind: Any) -> Any:
    numpy = library("numpy")
    if numpy is None:
        return polars.Series(columns.numbers(decoder, data, dtype), dtype=kind)
    return polars.Series(numpy.frombuffer(data, dtype))


def make_frame(decoder: Decoder, polars: Any, names: list[str], data: list[Column]) -> Any:
    return polars.DataFrame([make_series(decoder, polars, *pair) for pair in zip(names, data)])


ENCODERS: dict[str, Encode] = {
    "polars.dataframe.frame.DataFrame": _frame,
    "polars.series.series.Series": _series,
}

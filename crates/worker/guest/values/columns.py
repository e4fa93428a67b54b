"""Transfers the columns of polars' frames and Arrow's tables as verified bytes.

Columns are not transferred as Arrow IPC. A reader of IPC trusts its sender: of 600 streams with a few changed
bytes, pyarrow 26 crashed at 9 unless `validate(full=True)` preceded every other use. IPC metadata can
announce any size, and polars 2 raises a `BaseException` for a date beyond the calendar, in bytes that are
valid IPC. A column is therefore transferred in Arrow's layout, each part in its own buffer in shared memory,
described by this notation instead of IPC's metadata. This module verifies everything before a library sees
it: lengths, sizes, booleans, timestamps, texts and codes. A library then gets bytes that any honest sender
could have sent. The module needs neither numpy nor the libraries."""

from __future__ import annotations

import re
from itertools import accumulate

from . import arrays, standard
from .bounds import MAX_DEPTH, PACKED_UNIT, library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .decode import Decoder
    from .encode import Encoder
    from .kinds import Tree

# The dtype of the bytes of each fixed-width type.
FIXED = {"bool": "|b1", "int8": "|i1", "uint8": "|u1", "date": "<i4"}
FIXED.update({f"{sign}int{size}": f"<{sign or 'i'}{size // 8}" for sign in ("", "u") for size in (16, 32, 64)})
FIXED.update({f"float{size}": f"<f{size // 8}" for size in (16, 32, 64)})
TIMED = re.compile(r"(datetime|duration|time)\[(s|ms|us|ns)(?:, ([A-Za-z0-9_+\-/:]{1,64}))?\]")
DECIMAL = re.compile(r"decimal\[([1-9][0-9]?), (-?[0-9]{1,2})\]")
TEXTS = ("string", "large_string", "string_view")
BLOBS = ("binary", "large_binary", "binary_view")
LISTS = ("list", "large_list")
# The Python types of the elements of a nested column.
PLAIN = {
    "bool": ("bool",),
    "date": ("date",),
    "datetime": ("datetime",),
    "duration": ("timedelta",),
    "time": ("time",),
    "null": (),
    **dict.fromkeys(TEXTS, ("str",)),
    **dict.fromkeys(BLOBS, ("bytes",)),
    **{name: ("int",) for name in FIXED if "int" in name},
    **{name: ("float",) for name in FIXED if "float" in name},
}
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# The years 1 to 9999, which Python's own types cover: seconds and days since 1970.
FIRST_SECOND, LAST_SECOND = -62135596800, 253402300799
FIRST_DAY, LAST_DAY = -719162, 2932896
LONGEST_SPAN = 86_399_999_913_600
# The cost of reading an empty column, and the number of texts and lengths whose check costs as much as one
# value.
PART = 100
LENGTHS = 8
MAX_DIGITS = 80
# The `array` module's type code for the bytes of each dtype.
ITEMS = {"|b1": "B", "|i1": "b", "|u1": "B", "<i2": "h", "<u2": "H", "<i4": "i"}
ITEMS.update({"<u4": "I", "<i8": "q", "<u8": "Q", "<f4": "f", "<f8": "d", "<f2": "e"})


SIZES = {"b": 1, "B": 1, "h": 2, "H": 2, "e": 2, "i": 4, "I": 4, "f": 4}


class Column:
    """A verified column: `values` are numbers, texts or codes as bytes, or a list of Python objects."""

    __slots__ = ("categories", "length", "lengths", "mask", "offsets", "ordered", "schema", "values")

    def __init__(self, schema: Any, length: int, values: Any, mask: Any = None) -> None:
        self.schema = schema
        self.length = length
        self.values = values
        # Bytes that are 1 where an element is missing.
        self.mask = mask
        # The length of each text in bytes, or -1 for a missing text.
        self.lengths: Any = None
        # The offset of each text in `values`, followed by the end of the last text.
        self.offsets: Any = None
        self.categories: Any = None
        self.ordered = False

    def texts(self, start: int, end: int, errors: str = "strict") -> list[Any]:
        """Returns some of the texts as Python objects."""
        offsets = self.offsets[start : end + 1]
        data = bytes(self.values[offsets[0] : offsets[-1]])
        first = offsets[0]
        spans = zip(self.lengths[start:end], offsets, offsets[1:])
        found = [None if length < 0 else data[a - first : b - first] for length, a, b in spans]
        if self.schema in BLOBS:
            return found
        return [None if text is None else text.decode("utf-8", errors) for text in found]


def read_column(decoder: Decoder, tree: Any, depth: int) -> Column:
    decoder.spend(PART)
    if type(tree) is not dict or type(tree.get("dtype")) is not str or depth > MAX_DEPTH:
        raise ValueError("the column of a table is not an object with a dtype")
    dtype = tree["dtype"]
    if dtype in FIXED or TIMED.fullmatch(dtype):
        return _fixed(decoder, tree, dtype)
    if dtype in TEXTS or dtype in BLOBS:
        return _texts(decoder, tree, dtype)
    if dtype in ("category", "enum"):
        return _category(decoder, tree, dtype, depth)
    schema = check_schema(tree.get("schema")) if dtype == "nested" else dtype
    listed = tree.get("values")
    if type(listed) is not list or not (dtype in ("nested", "null") or DECIMAL.fullmatch(dtype)):
        raise ValueError("the column of a table is of an unknown type")
    values = [decoder.value(part, depth + 2) for part in listed]
    for value in values:
        _check_plain(decoder, schema, value)
    return Column(schema, len(values), values)


def _fixed(decoder: Decoder, tree: Tree, dtype: str) -> Column:
    timed = TIMED.fullmatch(dtype)
    kind = FIXED.get(dtype) or bytes_of(timed)
    data, count = arrays.flat(decoder, tree.get("values"), kind)
    mask = read_mask(decoder, tree, count)
    if dtype == "date":
        _check_range(decoder, data.cast("i"), FIRST_DAY, LAST_DAY)
    elif timed is not None:
        _check_range(decoder, data.cast("q"), *_range(timed[1], PER_SECOND[timed[2]]))
    return Column(dtype, count, data, mask)


def read_mask(decoder: Decoder, tree: Tree, count: int) -> memoryview | None:
    """Returns the mask of missing elements, or `None`."""
    if tree.get("mask") is None:
        return None
    mask, masked = arrays.flat(decoder, tree["mask"], "|b1")
    if masked != count:
        raise ValueError("the column of a table does not match its mask")
    return mask


def numbers(decoder: Decoder, data: Any, dtype: str) -> list[Any]:
    """Returns the elements of an array, without numpy."""
    code, data = ITEMS.get(dtype, "q"), data.cast("B")
    decoder.spend(len(data) // (SIZES.get(code, 8) * PACKED_UNIT))
    if code != "e":
        found: list[Any] = data.cast(code).tolist()
        return found
    # A memoryview does not support floats of two bytes.
    return [half(number) for number in data.cast("H").tolist()]


def half(bits: int) -> float:
    from struct import pack, unpack

    found: float = unpack("<e", pack("<H", bits))[0]
    return found


def bytes_of(timed: Any) -> str:
    """Returns the dtype of the bytes of timestamps and durations."""
    return {"datetime": f"<M8[{timed[2]}]", "duration": f"<m8[{timed[2]}]"}.get(timed[1], "<i8")


def _range(kind: str, unit: int) -> tuple[int, int]:
    if kind == "time":
        return 0, 86400 * unit - 1
    if kind == "datetime":
        return FIRST_SECOND * unit, LAST_SECOND * unit + unit - 1
    most = min(LONGEST_SPAN * unit, (1 << 63) - 1)
    return -most, most


def _check_range(decoder: Decoder, numbers: Any, least: int, most: int) -> None:
    numpy = library("numpy")
    if numpy is not None:
        numbers = numpy.asarray(numbers)
    elif len(numbers):
        decoder.spend(len(numbers) // PACKED_UNIT)
    if len(numbers):
        low, high = (numbers.min(), numbers.max()) if numpy is not None else (min(numbers), max(numbers))
        if not least <= int(low) <= int(high) <= most:
            raise ValueError("a table has a timestamp outside of the years 1 to 9999, or a duration of that size")


def _texts(decoder: Decoder, tree: Tree, dtype: str) -> Column:
    parts = tree.get("values")
    items = parts.get("items") if type(parts) is dict else None
    if type(items) is not list or len(items) != 2 or type(items[1]) is not dict:
        raise ValueError("the texts of a column are not lengths and bytes")
    lengths, count = arrays.flat(decoder, items[0], "<i4")
    data = decoder.text({"type": "bytes", **items[1]})
    lengths = lengths.cast("i")
    column = Column(dtype, count, data)
    decoder.spend(count // LENGTHS)
    column.lengths, column.offsets = lengths, _offsets(lengths)
    if (count and min(lengths) < -1) or column.offsets[count] != data.nbytes:
        raise ValueError("the texts of a column do not match its lengths")
    return column


def _offsets(lengths: Any) -> Any:
    numpy = library("numpy")
    if numpy is None:
        from array import array

        known = (length if length > 0 else 0 for length in lengths)
        return memoryview(array("q", accumulate(known, initial=0)))
    ends = numpy.zeros(len(lengths) + 1, "<i8")
    numpy.cumsum(numpy.maximum(numpy.asarray(lengths), 0), out=ends[1:])
    return ends.data


def _category(decoder: Decoder, tree: Tree, dtype: str, depth: int) -> Column:
    codes, count = arrays.flat(decoder, tree.get("values"), "<i4")
    categories = read_column(decoder, tree.get("categories"), depth + 1)
    decoder.spend(categories.length)
    codes = codes.cast("i")
    decoder.spend(count // PACKED_UNIT)
    if count and not -1 <= min(codes) <= max(codes) < categories.length:
        raise ValueError("the codes of a column are out of range for its categories")
    column = Column(dtype, count, codes)
    column.categories, column.ordered = categories, tree.get("ordered") is True
    return column


def check_schema(schema: Any, depth: int = 0) -> Any:
    """Returns the type of a nested column: a name, or a list of a kind and its parts."""
    if type(schema) is str:
        timed = TIMED.fullmatch(schema)
        if schema in PLAIN or DECIMAL.fullmatch(schema) or (timed and timed[2] != "ns"):
            return schema
    elif type(schema) is list and schema and depth < 16:
        kind, rest = schema[0], schema[1:]
        if kind in LISTS and len(rest) == 1:
            return [kind, check_schema(rest[0], depth + 1)]
        if kind == "array" and len(rest) == 2 and type(rest[0]) is int and 0 <= rest[0] < 1 << 31:
            return [kind, rest[0], check_schema(rest[1], depth + 1)]
        if kind == "struct" and len(rest) == 1 and type(rest[0]) is list:
            fields = [_check_field(field, depth) for field in rest[0]]
            if len({name for name, _ in fields}) == len(fields):
                return [kind, fields]
    raise ValueError("a nested column is of an unknown type")


def _check_field(field: Any, depth: int) -> list[Any]:
    if type(field) is not list or len(field) != 2 or type(field[0]) is not str:
        raise ValueError("a nested column is of an unknown type")
    return [field[0], check_schema(field[1], depth + 1)]


def _check_plain(decoder: Decoder, schema: Any, value: Any) -> None:
    """Raises `ValueError` unless a Python object is of a column's type."""
    decoder.spend(1)
    if value is None:
        # A missing fixed-width array takes as much memory as any other.
        if type(schema) is list and schema[0] == "array":
            decoder.spend(_width(schema))
        return
    if type(schema) is list:
        parts = _parts(schema, value)
        if parts is not None:
            for part, item in parts:
                _check_plain(decoder, part, item)
            return
    else:
        timed = TIMED.fullmatch(schema)
        exact = DECIMAL.fullmatch(schema) is not None
        names = ("Decimal",) if exact else PLAIN[timed[1] if timed else schema]
        if type(value).__name__ in names and not (exact and _is_long(value)):
            return
    raise ValueError("an element of a column is not of the column's type")


def _parts(schema: Any, value: Any) -> list[tuple[Any, Any]] | None:
    """Returns the elements of a nested element, each with its type; `None` if it is not of the type."""
    if schema[0] == "struct":
        names = [name for name, _ in schema[1]]
        if type(value) is dict and list(value) == names:
            return [(part, value[name]) for name, part in schema[1]]
    elif type(value) is list and (schema[0] != "array" or len(value) == schema[1]):
        return [(schema[-1], item) for item in value]
    return None


def _is_long(value: Any) -> bool:
    """Returns whether a library would take long to write a decimal out."""
    _, digits, exponent = value.as_tuple()
    return type(exponent) is not int or len(digits) + abs(exponent) > MAX_DIGITS


def _width(schema: Any) -> int:
    return schema[1] * max(1, _width(schema[2])) if type(schema) is list and schema[0] == "array" else 1


def zone_name(decoder: Decoder, name: str) -> str:
    """Returns the time zone if it is known here, otherwise UTC, in which the timestamps are the same."""
    if name != "UTC" and (standard.ZONE.fullmatch(name) is None or standard.zone_of(decoder, name) is None):
        return "UTC"
    return name


def texts_tree(encoder: Encoder, lengths: Any, data: Any) -> Tree:
    """Returns the tree of the texts of a column."""
    encoder.count(14)
    # Like the readers, which check the lengths and create the texts.
    encoder.spend(2 * (memoryview(lengths).nbytes // 4 // LENGTHS))
    pair = [number_tree(encoder, "<i4", lengths), {"type": "bytes", "buffer": encoder.buffer(data)}]
    return {"type": "tuple", "items": pair}


def number_tree(encoder: Encoder, dtype: str, data: Any) -> Tree:
    """Returns the tree of an array, from its bytes."""
    data = memoryview(data).cast("B") if len(data) else b""
    count = len(data) // arrays.item_size(dtype)[1]
    encoder.count(10)
    return {"type": "ndarray", "dtype": dtype, "shape": [count], "buffer": encoder.buffer(data)}


def range_index(stop: int) -> Tree:
    return {"type": "range-index", "start": 0, "stop": stop, "step": 1, "name": None}


def frame_tree(encoder: Encoder, of: str, names: list[str], data: list[Tree], rows: int) -> Tree:
    encoder.count(20)
    labels = {"dtype": "object", "values": encoder.items(names, 5, True)}
    return {
        "type": "dataframe",
        "of": of,
        "columns": {"type": "index", "names": [None], "data": [labels]},
        "index": range_index(rows),
        "data": data,
    }


def series_tree(encoder: Encoder, of: str, name: Any, data: Tree, rows: int) -> Tree:
    encoder.count(20)
    name = encoder.tree(name, 2, True)
    return {
        "type": "series",
        "of": of,
        "name": name,
        "index": range_index(rows),
        "data": data,
    }


def listed_tree(encoder: Encoder, schema: Any, values: list[Any], depth: int) -> Tree:
    items = encoder.items(values, depth + 2, False)
    if type(schema) is str:
        return {"dtype": schema, "values": items}
    encoder.count(20)
    return {"dtype": "nested", "schema": schema, "values": items}


def check_rows(tree: Tree, columns: Sequence[Column]) -> int:
    """Returns the number of rows. Raises `ValueError` if a column has another length."""
    index = tree.get("index")
    rows = index.get("stop") if type(index) is dict and index.get("type") == "range-index" else None
    if type(rows) is not int or (columns and {column.length for column in columns} != {rows}):
        raise ValueError("the columns of a table differ in length from its index")
    return rows


def read_names(decoder: Decoder, tree: Tree, depth: int) -> list[str]:
    """Returns the names of the columns, which must be texts."""
    index = tree.get("columns")
    data = index.get("data") if type(index) is dict else None
    if type(data) is not list or len(data) != 1 or type(data[0]) is not dict:
        raise ValueError("the columns of a table have no names")
    listed = data[0].get("values")
    if type(listed) is not list:
        raise ValueError("the columns of a table have no names")
    names = [decoder.value(name, depth + 3) for name in listed]
    if not all(type(name) is str for name in names):
        raise ValueError("the name of a column is not text")
    return names

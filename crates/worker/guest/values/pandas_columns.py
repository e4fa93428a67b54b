"""Encodes and decodes the columns of pandas' frames and labels, with the dtype of each. tables.py assembles
them into frames, series and indexes."""

from __future__ import annotations

import re
import sys

from . import arrays, arrow_tables, columns, standard
from .bounds import NotSupported, library, weight
from .columns import PART

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .decode import Decoder
    from .encode import Encoder
    from .kinds import Tree

# Masked integers, floats and booleans, by the dtype of their data.
MASKED = {
    f"{sign}{size}": f"{sign}{size}".lower() for sign in ("Int", "UInt") for size in (8, 16, 32, 64)
}
MASKED.update(Float32="float32", Float64="float64", boolean="bool")
# String dtypes whose missing elements are `NA` and `nan`.
STRINGS = ("string", "str")
STORED = re.compile(r"(string|str)(\[pyarrow\])?")
ZONED = re.compile(r"datetime64\[(?:s|ms|us|ns), ([A-Za-z0-9_+\-/:]{1,64})\]")
PERIOD = re.compile(r"period\[([0-9]{0,3}[A-Za-z]{1,4}(?:-[A-Z]{3})?)\]")
# With the type in Arrow's layout, which columns.py defines.
ARROW = re.compile(r"arrow\[(.+)\]")
# With the type of both ends.
INTERVAL = re.compile(
    r"interval\[(u?int64|float64|(?:datetime|timedelta)64\[(?:s|ms|us|ns)(?:, [A-Za-z0-9_+\-/:]{1,64})?\]), "
    r"(left|right|both|neither)\]"
)
# The types of a sparse column's fill value, by the kind of its elements.
FILLED = {"b": (bool,), "i": (int,), "u": (int,), "f": (float,)}
# The number of sparse elements whose reading costs as much as one value of a tree. Each stored element also
# takes four bytes for its index, and more while the column is created.
SPARSE = 4
# The number of slots of pandas' hash tables whose visit costs as much as one value of a tree. A sender can
# predict all hashes except those of text.
PLACES = 128
# The number of colliding pairs of interval ends in a Python set whose comparison costs as much as one value.
PAIRS = 8


def column_tree(encoder: Encoder, column: Any, depth: int, whose: str) -> Tree:
    """Returns the tree of a series or an index. `whose` names it in errors."""
    encoder.count(10)
    dtype, name = column.dtype, str(column.dtype)
    pandas, numpy = sys.modules["pandas"], sys.modules["numpy"]
    if isinstance(dtype, pandas.CategoricalDtype):
        data = column.array
        return {
            "dtype": "category",
            "values": arrays.array_tree(encoder, numpy.asarray(data.codes)),
            "categories": column_tree(encoder, data.categories, depth + 1, f"a category of {whose}"),
            "ordered": bool(data.ordered),
        }
    if isinstance(dtype, getattr(pandas, "ArrowDtype", ())):
        tree = arrow_tables.column_tree(encoder, column.array.__arrow_array__(), depth, whose)
        return {**tree, "dtype": f"arrow[{tree['dtype']}]"}
    if name in MASKED:
        data, missing = column.array, column.isna()
        filled = data.to_numpy(dtype=MASKED[name], na_value=False if name == "boolean" else 0)
        return {
            "dtype": name,
            "values": arrays.array_tree(encoder, filled),
            "mask": arrays.array_tree(encoder, numpy.asarray(missing)),
        }
    if isinstance(dtype, pandas.StringDtype):
        texts = zip(column.isna(), column.to_numpy(dtype=object))
        values = [None if missing else text for missing, text in texts]
        kind = "string" if dtype.na_value is pandas.NA else "str"
        stored = "" if dtype.storage == "python" else "[pyarrow]"
        return {"dtype": kind + stored, "values": encoder.items(values, depth + 2, False)}
    if PERIOD.fullmatch(name):
        return {"dtype": name, "values": arrays.array_tree(encoder, column.array.asi8)}
    if INTERVAL.fullmatch(name):
        sides = (column.array.left, column.array.right)
        ends = [column_tree(encoder, side, depth + 2, whose)["values"] for side in sides]
        return {"dtype": name, "values": {"type": "tuple", "items": ends}}
    if ZONED.fullmatch(name):
        moments = column.array.tz_convert(None).to_numpy()
        return {"dtype": name, "values": arrays.array_tree(encoder, moments)}
    if isinstance(dtype, pandas.SparseDtype) and has_own_fill(dtype):
        # Transfer all elements, so that the length of a column does not depend on the sender's claim.
        encoder.spend(len(column) // SPARSE)
        full = arrays.array_tree(encoder, numpy.asarray(column.array, dtype.subtype))
        fill = encoder.tree(numpy.asarray(dtype.fill_value, dtype.subtype).item(), depth + 2, False)
        return {"dtype": "sparse", "values": full, "schema": fill}
    if isinstance(dtype, numpy.dtype) and dtype.kind in "biufcmM" and dtype.char not in "gG":
        return {"dtype": name, "values": arrays.array_tree(encoder, column.to_numpy())}
    # Timestamps in a zone without a name are the same as objects. Elements of other types would become
    # placeholders, or change their type.
    if dtype != object and not isinstance(dtype, pandas.DatetimeTZDtype):
        remedy = "convert it first, for example with astype(str)"
        raise NotSupported(f"{whose} is of type {name}, which cannot be transferred: {remedy}")
    values = list(column.to_numpy(dtype=object))
    return {"dtype": "object", "values": encoder.items(values, depth + 2, False)}


def spend_hashing(decoder: Decoder, labels: Any) -> None:
    """Charges the budget for pandas' hash table of labels that all collide."""
    if isinstance(labels, library("pandas").IntervalIndex):
        decoder.spend(len(labels) ** 2 // PAIRS)
    elif labels.nlevels == 1 and (labels.dtype == object or str(labels.dtype) in STRINGS):
        others = [label for label in labels if type(label) is not str]
        decoder.spend(len(others) * sum(map(weight, others)))
    else:
        decoder.spend(len(labels) ** 2 // PLACES)


def as_it_is(data: Any) -> dict[str, Any]:
    """Returns options that keep pandas from inferring a type for objects."""
    return {"dtype": object} if getattr(data, "dtype", None) == object else {}


def read_column(decoder: Decoder, tree: Tree, depth: int) -> Any:
    """Returns a one-dimensional array of numpy or pandas."""
    decoder.spend(PART)
    numpy, pandas = library("numpy"), library("pandas")
    if type(tree) is not dict:
        raise ValueError("the column of a table is not an object")
    name = tree.get("dtype")
    stored = STORED.fullmatch(name) if type(name) is str else None
    if stored is not None or name == "object":
        listed = decoder.field(tree, "values", list)
        values = [decoder.value(part, depth + 2) for part in listed]
        if stored is not None and all(type(value) in (str, type(None)) for value in values):
            return _texts(pandas, stored[1], stored[2], values)
        objects = numpy.empty(len(values), object)
        for place, value in enumerate(values):
            objects[place] = _missing(numpy, pandas, value)
        return objects
    plain = of_arrow(tree)
    if plain is not tree:
        column = columns.read_column(decoder, plain, depth)
        return pandas.arrays.ArrowExtensionArray(arrow_tables.make_array(decoder, library("pyarrow"), column))
    interval = INTERVAL.fullmatch(name) if type(name) is str else None
    if interval is not None:
        left, right = (read_column(decoder, end, depth + 1) for end in ends_of(tree, interval[1]))
        if any(str(end.dtype).partition("[")[0] != interval[1].partition("[")[0] for end in (left, right)):
            # pandas would widen each smaller number to eight bytes.
            raise ValueError("intervals have ends of another type")
        return pandas.arrays.IntervalArray.from_arrays(left, right, closed=interval[2])
    data = read_array(decoder, tree, "values", depth)
    if data.dtype.kind not in "biufcmM":
        raise ValueError("the column of a table is not an array of numbers or times")
    if name == "sparse":
        fill = decoder.value(tree.get("schema"), depth + 1)
        if type(fill) not in FILLED.get(data.dtype.kind, ()):
            raise ValueError("the fill value of a sparse column is not of the column's type")
        decoder.spend(len(data) // SPARSE)
        sparse = pandas.SparseDtype(data.dtype, numpy.array(fill, data.dtype).item())
        return pandas.arrays.SparseArray(data, dtype=sparse)
    if name in MASKED:
        return _read_masked(pandas, name, data, read_array(decoder, tree, "mask", depth))
    if name == "category":
        labels = read_column(decoder, tree.get("categories"), depth + 1)
        categories = pandas.Index(labels, **as_it_is(labels))
        # If pandas knows that labels are increasing, it needs no hash table to check that they are unique.
        if not _is_in_order(categories):
            spend_hashing(decoder, categories)
        ordered = tree.get("ordered") is True
        return pandas.Categorical.from_codes(data, categories=categories, ordered=ordered)
    period = PERIOD.fullmatch(name) if type(name) is str else None
    if period is not None:
        if data.dtype != "int64":
            raise ValueError("the column of a table is not an array of periods")
        return pandas.arrays.PeriodArray(data, dtype=pandas.PeriodDtype(period[1]))
    zoned = ZONED.fullmatch(name) if type(name) is str else None
    if zoned is not None:
        if data.dtype.kind != "M":
            raise ValueError("the column of a table is not an array of timestamps")
        moments = pandas.DatetimeIndex(data).tz_localize("UTC")
        return moments.tz_convert(read_zone(decoder, pandas, zoned[1]))
    return data


def numbers_of(labels: Any) -> Any:
    """Returns the integers of timestamps and periods; other labels unchanged."""
    # Before pandas 2 every index has the attribute.
    found = getattr(labels, "asi8", None)
    return labels if found is None else found


def _is_in_order(labels: Any) -> bool:
    """Returns whether the labels are strictly increasing. The check makes pandas cache the answer."""
    pandas = library("pandas")
    if isinstance(labels, pandas.IntervalIndex):
        return _is_in_order(labels.left)
    if isinstance(labels.dtype, (getattr(pandas, "ArrowDtype", pandas.SparseDtype), pandas.SparseDtype)):
        return False
    plain = numbers_of(labels)
    if getattr(plain.dtype, "kind", None) not in tuple("biufmM"):
        return False
    plain = plain.to_numpy() if plain is labels else plain
    return bool((plain[1:] > plain[:-1]).all()) and labels.is_monotonic_increasing


def read_zone(decoder: Decoder, pandas: Any, name: str) -> Any:
    """Returns the time zone as an object. If given the name, pandas would open any file that the name points
    to."""
    zone: Any = None if name == "UTC" else standard.zone_of(decoder, name)
    if zone is None:
        # If the zone is not known here, the timestamps are still the same.
        return library("datetime").timezone.utc
    if getattr(zone, "key", None) == name and pandas.__version__.startswith("2."):
        pytz = library("pytz")
        zone = pytz.timezone(name) if name in pytz.all_timezones_set else zone
    return zone


def _missing(numpy: Any, pandas: Any, value: Any) -> Any:
    """Returns the value that pandas uses for a missing object."""
    if isinstance(value, (numpy.datetime64, numpy.timedelta64)) and numpy.isnat(value):
        return pandas.NaT
    return value


def has_own_fill(dtype: Any) -> bool:
    """Returns whether a sparse column's fill value is of the type of its elements, and not NaN among
    integers."""
    kind = dtype.subtype.kind
    return kind == "f" or (kind in FILLED and dtype.fill_value == dtype.fill_value)


def of_arrow(tree: Tree) -> Tree:
    """Returns an Arrow-backed column of pandas in Arrow's layout, and any other column unchanged."""
    name = tree.get("dtype")
    found = ARROW.fullmatch(name) if type(name) is str else None
    return tree if found is None else {**tree, "dtype": found[1]}


def needs_arrow(column: Any) -> bool:
    """Returns whether a column, or its categories, are Arrow-backed."""
    while type(column) is dict:
        if of_arrow(column) is not column:
            return True
        column = column.get("categories")
    return False


def ends_of(tree: Tree, dtype: str) -> list[Tree]:
    """Returns the columns of the left and right ends of intervals."""
    pair = tree.get("values")
    items = pair.get("items") if type(pair) is dict else None
    if type(items) is not list or len(items) != 2:
        raise ValueError("the column of a table is not an array of intervals")
    return [{"dtype": dtype, "values": item} for item in items]


def _texts(pandas: Any, kind: str, in_arrow: str | None, values: list[Any]) -> Any:
    storage = "pyarrow" if in_arrow and library("pyarrow") is not None else "python"
    if kind == "string":
        return pandas.array(values, dtype=pandas.StringDtype(storage))
    numpy = library("numpy")
    try:
        return pandas.array(values, dtype=pandas.StringDtype(storage, na_value=numpy.nan))
    except TypeError:
        # Before pandas 2.3 these texts are objects.
        return numpy.array([numpy.nan if value is None else value for value in values], object)


def read_array(decoder: Decoder, tree: Tree, name: str, depth: int) -> Any:
    shown = decoder.shown
    array = decoder.value(tree.get(name), depth + 1)
    # The cost of showing it is counted by the table that contains it.
    decoder.shown = shown
    if getattr(array, "ndim", None) != 1:
        raise ValueError("the column of a table is not a one-dimensional array")
    return array


def _read_masked(pandas: Any, name: str, data: Any, mask: Any) -> Any:
    if str(data.dtype) != MASKED[name] or str(mask.dtype) != "bool" or len(mask) != len(data):
        raise ValueError("the column of a table does not match its mask")
    kinds = {"b": "BooleanArray", "f": "FloatingArray", "i": "IntegerArray", "u": "IntegerArray"}
    return getattr(pandas.arrays, kinds[data.dtype.kind])(data, mask)


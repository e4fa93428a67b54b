"""Encodes and decodes pandas' frames and series, with the dtype of each column. Encoding does not import
pandas. If it is missing when a tree is decoded, the value is `Opaque`."""

from __future__ import annotations

import sys

from . import arrays
from .bounds import I64, NotSupported, Opaque, library, weight
from .columns import PART
from .pandas_columns import (
    MASKED,
    PERIOD,
    STRINGS,
    ZONED,
    as_it_is,
    column_tree,
    numbers_of,
    read_array,
    read_column,
    read_zone,
    spend_hashing,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .decode import Decoder
    from .encode import Encoder
    from .kinds import Encode, Tree

# The cost of creating a pandas scalar.
SCALAR = 10
CLOSED = ("left", "right", "both", "neither")
# The `dtype` of a level of a multi-level index.
LEVEL = "level"
# The number of labels of a level whose visit costs as much as one value of a tree, and of numbers whose
# sorting does.
VISITED, SORTED = 16, 4


def _frame(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    columns = [value.iloc[:, i] for i in range(value.shape[1])]
    return {
        "type": "dataframe",
        "columns": _index(encoder, value.columns, depth + 1),
        "index": _index(encoder, value.index, depth + 1),
        "data": [column_tree(encoder, column, depth + 2, f"column {column.name!r}") for column in columns],
    }


def _series(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    return {
        "type": "series",
        "name": encoder.tree(value.name, depth + 1, True),
        "index": _index(encoder, value.index, depth + 1),
        "data": column_tree(encoder, value, depth + 1, "the series"),
    }


def _labels(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    """Returns the tree of an index, as a series of labels only."""
    return {
        "type": "series",
        "of": "pandas-index",
        "name": None,
        "index": _index(encoder, value, depth + 1),
        "data": {"dtype": "object", "values": []},
    }


def _array(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    """Returns the tree of a pandas extension array, as a series without labels."""
    series = sys.modules["pandas"].Series(value)
    return {**_series(encoder, series, depth, key), "of": "pandas-array"}


def _index(encoder: Encoder, index: Any, depth: int) -> Tree:
    pandas = sys.modules["pandas"]
    if type(index) is pandas.RangeIndex:
        ends = {"start": index.start, "stop": index.stop, "step": index.step}
        return {"type": "range-index", **ends, "name": encoder.tree(index.name, depth + 1, True)}
    encoder.count(8)
    if isinstance(index, pandas.MultiIndex):
        used = index.remove_unused_levels()
        data = [_level(encoder, *level, depth + 2) for level in zip(used.levels, used.codes)]
    else:
        data = [column_tree(encoder, index, depth + 2, "an index")]
    names = [encoder.tree(name, depth + 2, True) for name in index.names]
    return {"type": "index", "names": names, "data": data}


def _level(encoder: Encoder, labels: Any, codes: Any, depth: int) -> Tree:
    """Returns a level of a multi-level index: its labels in order, and the code of each row."""
    encoder.spend(_work_of_level(labels, len(codes)))
    encoder.count(6)
    return {
        "dtype": LEVEL,
        "values": arrays.array_tree(encoder, sys.modules["numpy"].asarray(codes)),
        "categories": column_tree(encoder, labels, depth + 1, "an index"),
    }


def _stamp(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    """Encodes a pandas timestamp. It is encoded as numpy's if Python's would lose nanoseconds."""
    pandas = sys.modules["pandas"]
    if value is not pandas.NaT and not value.nanosecond:
        plain = value.to_pydatetime()
    elif value is pandas.NaT or value.tzinfo is None:
        plain = value.to_datetime64()
    else:
        return _zoned(encoder, value, depth)
    return encoder.tree(plain, depth, key)


def _zoned(encoder: Encoder, value: Any, depth: int) -> Tree:
    name = str(sys.modules["pandas"].DatetimeTZDtype("ns", value.tz))
    if ZONED.fullmatch(name) is None:
        raise ValueError("a timestamp in a zone without a name")
    return _shown(encoder, value, [name, value.value])


def _interval(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    # Both ends in the same way, because pandas requires the same time zone of both.
    ends = [
        encoder.tree(end, depth + 2, True)
        if getattr(end, "tzinfo", None) is None
        else _zoned(encoder, end, depth + 2)
        for end in (value.left, value.right)
    ]
    return _shown(encoder, value, [value.closed, *ends])


def _period(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    name = f"period[{value.freqstr}]"
    if PERIOD.fullmatch(name) is None:
        raise ValueError("a period of a frequency that cannot be transferred")
    return _shown(encoder, value, [name, value.ordinal])


def _missing(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    return {**encoder.opaque(value), "parts": []}


def _shown(encoder: Encoder, value: Any, parts: list[Tree]) -> Tree:
    """Returns a value with its parts, and the `repr` to show if pandas is not installed."""
    encoder.spend(SCALAR)
    encoder.count(len(parts))
    return {**encoder.opaque(value), "parts": parts}


def _span(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    plain = value.to_timedelta64() if value.nanoseconds else value.to_pytimedelta()
    return encoder.tree(plain, depth, key)


ENCODERS: dict[str, Encode] = {}
for _module in ("pandas", "pandas.core.frame"):
    ENCODERS[f"{_module}.DataFrame"] = _frame
for _module in ("pandas", "pandas.core.series"):
    ENCODERS[f"{_module}.Series"] = _series
for _module in ("pandas", "pandas._libs.tslibs.timestamps"):
    ENCODERS[f"{_module}.Timestamp"] = _stamp
for _module in ("pandas", "pandas._libs.tslibs.timedeltas"):
    ENCODERS[f"{_module}.Timedelta"] = _span
for _module in ("pandas", "pandas._libs.interval"):
    ENCODERS[f"{_module}.Interval"] = _interval
for _module in ("pandas", "pandas._libs.tslibs.period"):
    ENCODERS[f"{_module}.Period"] = _period
for _module in ("pandas.api.typing", "pandas._libs.missing"):
    ENCODERS[f"{_module}.NAType"] = _missing
UNHASHABLE: set[Encode] = {_frame, _series, _labels, _array}


def _subclass(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    base = "DataFrame" if value.ndim == 2 else "Series"
    remedy = f"send what pandas.{base}() makes of it"
    raise NotSupported(f"a table of the class {type(value).__name__} cannot be transferred: {remedy}")


def encoder_of(kind: type) -> Encode | None:
    """Returns the encoder of indexes and arrays, which have a class for each kind, and of `NaT`, whose class
    is not available by name."""
    pandas = sys.modules.get("pandas")
    nat = getattr(pandas, "NaT", None)
    if nat is not None and type(nat) is kind:
        return _stamp
    for place, name, encoder in (
        *((pandas, "Index", _labels), (_extensions(pandas), "ExtensionArray", _array)),
        *((pandas, "DataFrame", _subclass), (pandas, "Series", _subclass)),
    ):
        known = getattr(place, name, None)
        if isinstance(known, type) and issubclass(kind, known):
            return encoder
    return None


def _extensions(pandas: Any) -> Any:
    return getattr(getattr(pandas, "api", None), "extensions", None)


def read_frame(decoder: Decoder, tree: Tree, depth: int) -> Any:
    pandas = library("pandas")
    decoder.spend(PART)
    columns = _read_index(decoder, decoder.field(tree, "columns", dict), depth + 1)
    index = _read_index(decoder, decoder.field(tree, "index", dict), depth + 1)
    data = [read_column(decoder, part, depth + 2) for part in decoder.field(tree, "data", list)]
    _require_length("columns", len(columns), len(data))
    for column in data:
        _require_length("rows", len(index), len(column))
    # Displaying the frame hashes its labels.
    spend_hashing(decoder, columns)
    # As series with the frame's index, so that pandas 3 does not convert objects to strings.
    parts = [pandas.Series(column, index, copy=False, **as_it_is(column)) for column in data]
    frame = pandas.DataFrame(dict(enumerate(parts)), index=index, copy=False)
    frame.columns = columns
    return frame


def read_series(decoder: Decoder, tree: Tree, depth: int) -> Any:
    pandas = library("pandas")
    decoder.spend(PART)
    if tree.get("of") == "pandas-index":
        return _read_index(decoder, decoder.field(tree, "index", dict), depth + 1)
    name = decoder.value(tree.get("name"), depth + 1)
    index = _read_index(decoder, decoder.field(tree, "index", dict), depth + 1)
    data = read_column(decoder, tree.get("data"), depth + 1)
    _require_length("rows", len(index), len(data))
    series = pandas.Series(data, index=index, name=name, copy=False, **as_it_is(data))
    return series.array if tree.get("of") == "pandas-array" else series


def read_scalar(decoder: Decoder, shown: Opaque, parts: Tree, depth: int) -> Any:
    """Returns the value that was sent with its parts; the placeholder if pandas is not installed here."""
    found = decoder.value(parts, depth)
    pandas, kind = library("pandas"), shown.name.rpartition(".")[2]
    if pandas is None:
        return shown
    if kind == "NAType" and found == []:
        return pandas.NA
    decoder.spend(SCALAR)
    if type(found) is list and len(found) > 1 and type(found[0]) is str:
        name, *numbers = found
        if kind == "Interval" and name in CLOSED and len(numbers) == 2:
            return pandas.Interval(*(_end(pandas, number) for number in numbers), closed=name)
        if len(numbers) == 1 and type(numbers[0]) is int:
            period, zoned = PERIOD.fullmatch(name), ZONED.fullmatch(name)
            if kind == "Period" and period is not None:
                return pandas.Period(ordinal=numbers[0], freq=period[1])
            if kind == "Timestamp" and zoned is not None:
                return pandas.Timestamp(numbers[0], tz="UTC").tz_convert(read_zone(decoder, pandas, zoned[1]))
    raise ValueError("a pandas value has invalid parts")


def _end(pandas: Any, value: Any) -> Any:
    """Returns an end of an interval."""
    kind, numpy, datetime = type(value), library("numpy"), library("datetime")
    if kind in (datetime.datetime, numpy.datetime64):
        return pandas.Timestamp(value)
    if kind in (datetime.timedelta, numpy.timedelta64):
        return pandas.Timedelta(value)
    if kind not in (int, float, pandas.Timestamp) and not isinstance(value, numpy.number):
        raise ValueError("an interval has an end that is neither a number nor a time")
    if kind is int and not -I64 <= value < I64:
        raise ValueError("an interval has an end of more than 64 bits")
    return value


def _require_length(what: str, wanted: int, found: int) -> None:
    if wanted != found:
        raise ValueError(f"a table declares {wanted} {what} and has {found}")


def _read_index(decoder: Decoder, tree: Tree, depth: int) -> Any:
    pandas = library("pandas")
    if tree.get("type") == "range-index":
        name = decoder.value(tree.get("name"), depth + 1)
        ends = [decoder.field(tree, end, int) for end in ("start", "stop", "step")]
        return pandas.RangeIndex(range(*decoder.value(ends, depth + 1)), name=name)
    names = [decoder.value(name, depth + 2) for name in decoder.field(tree, "names", list)]
    data = decoder.field(tree, "data", list)
    _require_length("index names", len(names), len(data))
    if not data:
        raise ValueError("an index has no data")
    if all(type(part) is dict and part.get("dtype") == LEVEL for part in data):
        levels, codes = zip(*(_read_level(decoder, part, depth + 2) for part in data))
        for numbers in codes:
            _require_length("rows", len(codes[0]), len(numbers))
        return pandas.MultiIndex(levels, codes, names=names, verify_integrity=False)
    if len(data) > 1:
        raise ValueError("an index of several columns is not made of levels")
    labels = read_column(decoder, data[0], depth + 2)
    return pandas.Index(labels, name=names[0], **as_it_is(labels))


def _work_of_level(labels: Any, rows: int) -> int:
    """Returns the cost of checking that the labels of a level are distinct, besides that of reading them.
    Numbers are sorted, and intervals by each end and by both together."""
    pandas, dtype = library("pandas"), labels.dtype
    others = (pandas.CategoricalDtype, getattr(pandas, "ArrowDtype", pandas.CategoricalDtype))
    is_other = isinstance(dtype, others) or dtype == object or str(dtype) in STRINGS
    sorts = 0 if is_other else 3 if isinstance(dtype, pandas.IntervalDtype) else 1
    return PART + (len(labels) + rows) // VISITED + sorts * len(labels) // SORTED


def _read_level(decoder: Decoder, tree: Tree, depth: int) -> tuple[Any, Any]:
    """Returns the labels of a level, and the code of each row."""
    numpy, pandas = library("numpy"), library("pandas")
    labels = read_column(decoder, tree.get("categories"), depth + 1)
    codes = read_array(decoder, tree, "values", depth)
    decoder.spend(_work_of_level(labels, len(codes)))
    if codes.dtype.kind != "i":
        raise ValueError("the codes of a level are not integers")
    if len(codes) and not -1 <= codes.min() <= codes.max() < len(labels):
        raise ValueError("the codes of a level are out of range for its labels")
    distinct, numbers = _distinct_labels(decoder, labels)
    if len(distinct) == len(labels):
        return pandas.Index(labels, **as_it_is(labels)), codes
    # Some labels are distinct only for their sender, or one is missing.
    return distinct, numpy.append(numbers, -1)[codes]


def _distinct_labels(decoder: Decoder, column: Any) -> tuple[Any, Any]:
    """Returns the distinct labels, and the code of each label. Labels are sorted and not hashed, because a
    sender can make them collide in a hash table."""
    numpy, pandas = library("numpy"), library("pandas")
    there = ~numpy.asarray(pandas.isna(column))
    present = column[there]
    if isinstance(column, pandas.Categorical):
        first, numbers = _distinct_numbers(numpy, pandas, present.codes)
    elif isinstance(column.dtype, getattr(pandas, "ArrowDtype", ())):
        decoder.spend(len(column))
        first, numbers = _distinct(decoder, list(present))
    elif column.dtype == object or str(column.dtype) in STRINGS:
        first, numbers = _distinct(decoder, list(present))
    else:
        first, numbers = _distinct_numbers(numpy, pandas, present)
    codes = numpy.full(len(column), -1, "i8")
    codes[there] = numbers
    labels = present[numpy.asarray(first, "i8")]
    return pandas.Index(labels, **as_it_is(labels)), codes


def _distinct_numbers(numpy: Any, pandas: Any, values: Any) -> tuple[Any, Any]:
    """Like `_distinct`, for an array without missing values."""
    plain = numbers_of(values)
    if isinstance(values, pandas.arrays.IntervalArray):
        ends = [_distinct_numbers(numpy, pandas, end)[1] for end in (values.left, values.right)]
        plain = ends[0] * (len(values) + 1) + ends[1]
    elif str(values.dtype) in MASKED:
        plain = values.to_numpy(dtype=MASKED[str(values.dtype)])
    _, first, numbers = numpy.unique(plain, return_index=True, return_inverse=True)
    return first, numbers


def _distinct(decoder: Decoder, values: list[Any]) -> tuple[list[int], list[int]]:
    """Returns the index of the first occurrence of each distinct value, and the code of each value. The
    distinct values are sorted if all have one orderable type that is cheap to compare."""
    kinds = set(map(type, values))
    if kinds == {str}:
        numbers = {text: number for number, text in enumerate(sorted(set(values)))}
        first = [0] * len(numbers)
        codes = [numbers[text] for text in values]
        for place in reversed(range(len(values))):
            first[codes[place]] = place
        return first, codes
    hashes = list(map(hash, values))
    first, codes, last = [], [0] * len(values), None
    alike: list[int] = []
    for place in sorted(range(len(values)), key=hashes.__getitem__):
        if hashes[place] != last:
            alike, last = [], hashes[place]
        for number in alike:
            label = values[first[number]]
            decoder.spend(weight(label) + weight(values[place]))
            if label == values[place]:
                break
        else:
            number = len(first)
            first.append(place)
            alike.append(number)
        codes[place] = number
    kind = kinds.pop() if len(kinds) == 1 else object
    if kind in (int, float, bool, bytes) or kind.__module__ == "datetime":
        try:
            order = sorted(range(len(first)), key=lambda number: values[first[number]])
        except TypeError:
            # Aware and naive datetimes cannot be compared.
            return first, codes
        ranks = dict(zip(order, range(len(order))))
        return [first[number] for number in order], [ranks[number] for number in codes]
    return first, codes

"""Encodes and decodes pandas' frames and series, with the dtype of each column. Encoding does not
import pandas. If it is missing when a tree is decoded, the value is `Opaque`."""

from __future__ import annotations

import re
import sys

from . import arrays, standard
from .bounds import NotSupported, Opaque, library, weight

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .decode import Decoder
    from .encode import Encoder
    from .kinds import Encode, Tree

# Masked integers, floats and booleans, by the dtype of their data.
MASKED = {
    f"{sign}{size}": f"{sign}{size}".lower() for sign in ("Int", "UInt") for size in (8, 16, 32, 64)
}
MASKED.update(Float32="float32", Float64="float64", boolean="bool")
STRINGS = ("string", "str")
ZONED = re.compile(r"datetime64\[(?:s|ms|us|ns), ([A-Za-z0-9_+\-/:]{1,64})\]")
PERIOD = re.compile(r"period\[([0-9]{0,3}[A-Za-z]{1,4}(?:-[A-Z]{3})?)\]")
# Work to create an empty part of a table.
PART = 100
# Slots of pandas' hash tables, or sorted numbers, that take as long to visit as one value of a
# tree. Except for text, a sender can predict the hashes.
PLACES = 128
SORTED = 16


def _frame(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    columns = [value.iloc[:, i] for i in range(value.shape[1])]
    return {
        "type": "dataframe",
        "columns": _index(encoder, value.columns, depth + 1),
        "index": _index(encoder, value.index, depth + 1),
        "data": [_column(encoder, column, depth + 2, f"column {column.name!r}") for column in columns],
    }


def _series(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    return {
        "type": "series",
        "name": encoder.tree(value.name, depth + 1, True),
        "index": _index(encoder, value.index, depth + 1),
        "data": _column(encoder, value, depth + 1, "the series"),
    }


def _labels(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    """An index alone, as a series of nothing but labels."""
    return {
        "type": "series",
        "of": "pandas-index",
        "name": None,
        "index": _index(encoder, value, depth + 1),
        "data": {"dtype": "object", "values": []},
    }


def _array(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    """An array of pandas' own, as a series without labels."""
    series = sys.modules["pandas"].Series(value)
    return {**_series(encoder, series, depth, key), "of": "pandas-array"}


def _index(encoder: Encoder, index: Any, depth: int) -> Tree:
    pandas = sys.modules["pandas"]
    if type(index) is pandas.RangeIndex:
        ends = {"start": index.start, "stop": index.stop, "step": index.step}
        return {"type": "range-index", **ends, "name": encoder.tree(index.name, depth + 1, True)}
    levels = [index]
    if isinstance(index, pandas.MultiIndex):
        levels = [index.get_level_values(i) for i in range(index.nlevels)]
    encoder.count(8)
    return {
        "type": "index",
        "names": [encoder.tree(name, depth + 2, True) for name in index.names],
        "data": [_column(encoder, level, depth + 2, "an index") for level in levels],
    }


def _column(encoder: Encoder, column: Any, depth: int, whose: str) -> Tree:
    """The tree of a series or an index, of which an error says whose it is."""
    encoder.count(10)
    dtype, name = column.dtype, str(column.dtype)
    pandas, numpy = sys.modules["pandas"], sys.modules["numpy"]
    if isinstance(dtype, pandas.CategoricalDtype):
        data = column.array
        return {
            "dtype": "category",
            "values": arrays.array_tree(encoder, numpy.asarray(data.codes)),
            "categories": _column(encoder, data.categories, depth + 1, f"a category of {whose}"),
            "ordered": bool(data.ordered),
        }
    if name in MASKED:
        data, missing = column.array, column.isna()
        filled = data.to_numpy(dtype=MASKED[name], na_value=False if name == "boolean" else 0)
        return {
            "dtype": name,
            "values": arrays.array_tree(encoder, filled),
            "mask": arrays.array_tree(encoder, numpy.asarray(missing)),
        }
    if name in STRINGS:
        texts = zip(column.isna(), column.to_numpy(dtype=object))
        values = [None if missing else text for missing, text in texts]
        return {"dtype": name, "values": encoder.items(values, depth + 2, False)}
    if PERIOD.fullmatch(name):
        return {"dtype": name, "values": arrays.array_tree(encoder, column.array.asi8)}
    if ZONED.fullmatch(name):
        moments = column.array.tz_convert(None).to_numpy()
        return {"dtype": name, "values": arrays.array_tree(encoder, moments)}
    if isinstance(dtype, numpy.dtype) and dtype.kind in "biufcmM":
        return {"dtype": name, "values": arrays.array_tree(encoder, column.to_numpy())}
    # Moments of a zone without a name are the same as objects. Others would be placeholders, or of another type.
    if not isinstance(dtype, (numpy.dtype, pandas.DatetimeTZDtype)):
        raise NotSupported(f"{whose} is of type {name}, which does not cross")
    values = list(column.to_numpy(dtype=object))
    return {"dtype": "object", "values": encoder.items(values, depth + 2, False)}


def _stamp(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    """A pandas timestamp or timedelta. It is encoded as numpy's if Python's would lose nanoseconds."""
    pandas = sys.modules["pandas"]
    if value is not pandas.NaT and not value.nanosecond:
        plain = value.to_pydatetime()
    elif value is pandas.NaT or value.tzinfo is None:
        plain = value.to_datetime64()
    else:
        raise ValueError("a moment with a zone and nanoseconds")
    return encoder.tree(plain, depth, key)


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
UNHASHABLE: set[Encode] = {_frame, _series, _labels, _array}


def encoder_of(kind: type) -> Encode | None:
    """The encoder of indexes and arrays, which have a class for each kind, and of `NaT`, whose class is
    not available by name."""
    pandas = sys.modules.get("pandas")
    nat = getattr(pandas, "NaT", None)
    if nat is not None and type(nat) is kind:
        return _stamp
    for place, name, encoder in ((pandas, "Index", _labels), (_extensions(pandas), "ExtensionArray", _array)):
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
    data = [_read_column(decoder, part, depth + 2) for part in decoder.field(tree, "data", list)]
    _require_length("columns", len(columns), len(data))
    for column in data:
        _require_length("rows", len(index), len(column))
    # Displaying the frame hashes its labels.
    _spend_hashing(decoder, columns)
    frame = pandas.DataFrame(dict(enumerate(data)), index=index, copy=False)
    frame.columns = columns
    return frame


def read_series(decoder: Decoder, tree: Tree, depth: int) -> Any:
    pandas = library("pandas")
    decoder.spend(PART)
    if tree.get("of") == "pandas-index":
        return _read_index(decoder, decoder.field(tree, "index", dict), depth + 1)
    name = decoder.value(tree.get("name"), depth + 1)
    index = _read_index(decoder, decoder.field(tree, "index", dict), depth + 1)
    data = _read_column(decoder, tree.get("data"), depth + 1)
    _require_length("rows", len(index), len(data))
    series = pandas.Series(data, index=index, name=name, copy=False)
    return series.array if tree.get("of") == "pandas-array" else series


def _require_length(what: str, wanted: int, found: int) -> None:
    if wanted != found:
        raise ValueError(f"a table of {wanted} {what} came with {found}")


def _read_index(decoder: Decoder, tree: Tree, depth: int) -> Any:
    pandas = library("pandas")
    if tree.get("type") == "range-index":
        name = decoder.value(tree.get("name"), depth + 1)
        ends = [decoder.field(tree, end, int) for end in ("start", "stop", "step")]
        return pandas.RangeIndex(range(*decoder.value(ends, depth + 1)), name=name)
    names = [decoder.value(name, depth + 2) for name in decoder.field(tree, "names", list)]
    data = [_read_column(decoder, part, depth + 2) for part in decoder.field(tree, "data", list)]
    _require_length("index names", len(names), len(data))
    if not data:
        raise ValueError("an index has no data")
    if len(data) > 1:
        for column in data:
            _require_length("rows", len(data[0]), len(column))
        levels, codes = zip(*(_read_level(decoder, column) for column in data))
        return pandas.MultiIndex(levels, codes, names=names, verify_integrity=False)
    return pandas.Index(data[0], name=names[0], **_as_it_is(data[0]))


def _read_level(decoder: Decoder, column: Any) -> tuple[Any, Any]:
    """The distinct labels of a level, and for each row the number of its label. Labels are sorted,
    because a sender can make them collide in a hash table."""
    decoder.spend(PART + len(column) // SORTED)
    numpy, pandas = library("numpy"), library("pandas")
    if isinstance(column, pandas.Categorical):
        each = numpy.arange(len(column.categories))
        labels = pandas.Categorical.from_codes(each, dtype=column.dtype)
        return pandas.CategoricalIndex(labels), column.codes
    there = ~numpy.asarray(pandas.isna(column))
    present = column[there]
    if column.dtype == object or str(column.dtype) in STRINGS:
        first, numbers = _distinct(decoder, list(present))
    else:
        plain = getattr(present, "asi8", present)
        if str(column.dtype) in MASKED:
            plain = present.to_numpy(dtype=MASKED[str(column.dtype)])
        _, first, numbers = numpy.unique(plain, return_index=True, return_inverse=True)
    codes = numpy.full(len(column), -1, "i8")
    codes[there] = numbers
    labels = present[numpy.asarray(first, "i8")]
    return pandas.Index(labels, **_as_it_is(labels)), codes


def _distinct(decoder: Decoder, values: list[Any]) -> tuple[list[int], list[int]]:
    """The index of the first occurrence of each distinct value, and for each value its number among
    these. They are sorted if all have one orderable type that is cheap to compare."""
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
            # Datetimes with an offset and without cannot be compared.
            return first, codes
        ranks = dict(zip(order, range(len(order))))
        return [first[number] for number in order], [ranks[number] for number in codes]
    return first, codes


def _spend_hashing(decoder: Decoder, labels: Any) -> None:
    """Spends the work of pandas' hash table for labels that all collide."""
    if labels.nlevels == 1 and (labels.dtype == object or str(labels.dtype) in STRINGS):
        others = [label for label in labels if type(label) is not str]
        decoder.spend(len(others) * sum(map(weight, others)))
    else:
        decoder.spend(len(labels) ** 2 // PLACES)


def _as_it_is(data: Any) -> dict[str, Any]:
    """Options that keep pandas from inferring a type for objects."""
    return {"dtype": object} if getattr(data, "dtype", None) == object else {}


def _read_column(decoder: Decoder, tree: Tree, depth: int) -> Any:
    """A one-dimensional array of numpy or pandas."""
    decoder.spend(PART)
    numpy, pandas = library("numpy"), library("pandas")
    if type(tree) is not dict:
        raise ValueError("the column of a table is no object")
    name = tree.get("dtype")
    if name in STRINGS or name == "object":
        listed = decoder.field(tree, "values", list)
        values = [decoder.value(part, depth + 2) for part in listed]
        if name != "object" and all(type(value) in (str, type(None)) for value in values):
            return pandas.array(values, dtype=name)
        objects = numpy.empty(len(values), object)
        for place, value in enumerate(values):
            objects[place] = _missing(numpy, pandas, value)
        return objects
    data = _read_array(decoder, tree, "values", depth)
    if data.dtype.kind not in "biufcmM":
        raise ValueError("the column of a table is no array of numbers or times")
    if name in MASKED:
        return _read_masked(pandas, name, data, _read_array(decoder, tree, "mask", depth))
    if name == "category":
        labels = _read_column(decoder, tree.get("categories"), depth + 1)
        categories = pandas.Index(labels, **_as_it_is(labels))
        # Once pandas knows that labels are increasing, it needs no hash table to see that they are unique.
        if not _is_in_order(categories):
            _spend_hashing(decoder, categories)
        ordered = tree.get("ordered") is True
        return pandas.Categorical.from_codes(data, categories=categories, ordered=ordered)
    period = PERIOD.fullmatch(name) if type(name) is str else None
    if period is not None:
        if data.dtype != "int64":
            raise ValueError("the column of a table is no array of periods")
        return pandas.arrays.PeriodArray(data, dtype=pandas.PeriodDtype(period[1]))
    zoned = ZONED.fullmatch(name) if type(name) is str else None
    if zoned is not None:
        if data.dtype.kind != "M":
            raise ValueError("the column of a table is no array of moments")
        moments = pandas.DatetimeIndex(data).tz_localize("UTC")
        return moments.tz_convert(_read_zone(decoder, pandas, zoned[1]))
    return data


def _is_in_order(labels: Any) -> bool:
    """Whether the labels are strictly increasing. The check makes pandas cache the answer."""
    plain = getattr(labels, "asi8", labels)
    if getattr(plain.dtype, "kind", None) not in tuple("biufmM"):
        return False
    plain = plain.to_numpy() if plain is labels else plain
    return bool((plain[1:] > plain[:-1]).all()) and labels.is_monotonic_increasing


def _read_zone(decoder: Decoder, pandas: Any, name: str) -> Any:
    """The time zone as an object. Given the name, pandas would open any file that the name points
    to."""
    zone: Any = None if name == "UTC" else standard.zone_of(decoder, name)
    if zone is None:
        # If this side does not know the zone, the moments are still the same.
        return library("datetime").timezone.utc
    if getattr(zone, "key", None) == name and pandas.__version__.startswith("2."):
        pytz = library("pytz")
        zone = pytz.timezone(name) if name in pytz.all_timezones_set else zone
    return zone


def _missing(numpy: Any, pandas: Any, value: Any) -> Any:
    """The value that pandas uses for a missing object."""
    if isinstance(value, (numpy.datetime64, numpy.timedelta64)) and numpy.isnat(value):
        return pandas.NaT
    if type(value) is Opaque and value.repr == "<NA>" and value.name.endswith(".NAType"):
        return pandas.NA
    return value


def _read_array(decoder: Decoder, tree: Tree, name: str, depth: int) -> Any:
    shown = decoder.shown
    array = decoder.value(tree.get(name), depth + 1)
    # The table that it is a part of counts the work of showing it.
    decoder.shown = shown
    if getattr(array, "ndim", None) != 1:
        raise ValueError("the column of a table is no array of one dimension")
    return array


def _read_masked(pandas: Any, name: str, data: Any, mask: Any) -> Any:
    if str(data.dtype) != MASKED[name] or str(mask.dtype) != "bool" or len(mask) != len(data):
        raise ValueError("the column of a table and its mask do not fit")
    kinds = {"b": "BooleanArray", "f": "FloatingArray", "i": "IntegerArray", "u": "IntegerArray"}
    return getattr(pandas.arrays, kinds[data.dtype.kind])(data, mask)


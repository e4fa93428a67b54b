"""Represents a frame or series of a package that is not installed here as a table that prints and iterates.
Elements are created on access, so a table takes no more memory than its message."""

from __future__ import annotations

from . import arrays, columns
from .bounds import HERE, I64, MAX_DEPTH, MAX_NAME, MAX_VALUES, Opaque, cut, harmless, safe_repr
from .pandas_columns import INTERVAL, ends_of, of_arrow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .decode import Decoder
    from .encode import Encoder
    from .kinds import Tree

# The rows, characters of a cell, and columns that `repr` shows.
SHOWN, WIDTH, ACROSS = 20, 40, 20
NAT = -I64
UNITS = {"D": 86400, "h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


class Table:
    """A frame of a package that is not installed here. Iterating yields the rows as dicts, `len` is their
    number, `table[name]` is a column as a list, and `columns` are the names. A second column `a` is named
    `a_2`. `missing` names the package that would decode the original frame. Row labels, unless they are plain
    numbers, are the first columns."""

    __slots__ = ("_columns", "_rows", "columns", "missing")

    def __init__(self, columns: list[str], data: list[Any], rows: int, missing: str) -> None:
        self.columns = tuple(_distinct(columns))
        self.missing = missing
        self._columns = data
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in range(self._rows):
            yield {name: data[row] for name, data in zip(self.columns, self._columns)}

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.columns:
            raise KeyError(name)
        return list(self._columns[self.columns.index(name)])

    def __getattr__(self, name: str) -> Any:
        message = f"'Table' object has no attribute {name!r}"
        # A copy under construction has no attributes yet.
        if name[:2] != "__" and name not in self.__slots__:
            message += f" ({self.missing})"
        raise AttributeError(message)

    def to_dict(self) -> dict[str, list[Any]]:
        """Returns the columns as lists, by name."""
        return {name: list(data) for name, data in zip(self.columns, self._columns)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return self.columns == other.columns and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def _shown(self) -> tuple[list[str], list[list[str] | None]]:
        """Returns the names, and the first and last rows as texts with `None` in between."""
        names = [cell_text(name) for name in self.columns[:ACROSS]]
        head = self._rows if self._rows <= SHOWN else SHOWN // 2
        places: list[int | None] = [*range(head)]
        if head < self._rows:
            places += [None, *range(self._rows - SHOWN // 2, self._rows)]
        return names, [None if row is None else self._row(row) for row in places]

    def _row(self, row: int) -> list[str]:
        return [cell_text(data[row]) for data in self._columns[:ACROSS]]

    def _size(self) -> str:
        return f"{self._rows} rows x {len(self.columns)} columns; {self.missing}"

    def __repr__(self) -> str:
        names, rows = self._shown()
        lines = [names, *(["..."] * len(names) if row is None else row for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines)]
        table = ["  ".join(text.rjust(width) for text, width in zip(line, widths)) for line in lines]
        return "\n".join([*table, f"[{self._size()}]"])

    def _repr_html_(self) -> str:
        from html import escape

        names, rows = self._shown()
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row or ["..."] * len(names)) + "</tr>"
            for row in rows
        )
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        return f"<table><tr>{head}</tr>{body}</table><p>{escape(self._size())}</p>"


def cell_text(value: Any) -> str:
    text = value if type(value) is str else "" if value is None else safe_repr(value)
    # One line for each row.
    return harmless(cut(text, WIDTH)).replace("\n", " ")


def table_tree(encoder: Encoder, value: Any, depth: int, key: bool) -> Tree:
    """Returns the tree of a `Table`, which is decoded to a `Table` again."""
    data = [
        {"dtype": "object", "values": encoder.items(column, depth + 4, False)} for column in value._columns
    ]
    return columns.frame_tree(encoder, "table", list(value.columns), data, len(value))


class Cells:
    """The numbers of an array, each converted to a Python object on access."""

    def __init__(self, data: Any, mask: Any, convert: Any) -> None:
        self.data, self.mask, self.convert = data, mask, convert

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, place: int) -> Any:
        if self.mask is not None and self.mask[place]:
            return None
        found = self.data[place]
        return found if self.convert is None else self.convert(found)

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))


class Codes(Cells):
    """Categories, by their codes."""

    def __getitem__(self, place: int) -> Any:
        code = self.data[place]
        return self.convert[code] if 0 <= code < len(self.convert) else None


class Intervals(Cells):
    """Intervals, by their ends. Python has no type for them."""

    def __getitem__(self, place: int) -> Any:
        left, right = (end[place] for end in self.data)
        if left is None or left != left:
            return None
        before = "[" if self.convert in ("left", "both") else "("
        after = "]" if self.convert in ("right", "both") else ")"
        return Opaque("pandas.Interval", f"{before}{left}, {right}{after}")

    def __len__(self) -> int:
        return len(self.data[0])


class Texts(Cells):
    """Texts and bytes of a verified column. Invalid UTF-8 is replaced."""

    def __getitem__(self, place: int) -> Any:
        found: Any = self.data.texts(place, place + 1, "replace")[0]
        return found

    def __len__(self) -> int:
        length: int = self.data.length
        return length


def read_table(decoder: Decoder, tree: Tree, depth: int, package: str | None) -> Table:
    if tree["type"] == "series":
        parts, names = [tree.get("data")], [decoder.value(tree.get("name"), depth + 1)]
    else:
        parts = decoder.field(tree, "data", list)
        names = _labels(decoder, decoder.field(tree, "columns", dict), depth + 1)
    data = [_cells(decoder, part, depth + 2) for part in parts]
    if len(names) != len(data):
        raise ValueError(f"a table declares {len(names)} columns and has {len(data)}")
    index = decoder.field(tree, "index", dict)
    levels, rows = _levels(decoder, index, depth + 1)
    if tree.get("of") == "pandas-index":
        # An index consists of its labels only.
        names, data = ([], []) if levels else (["index"], [range(rows)])
    if rows > MAX_VALUES and not any(type(part) is not range for part in data):
        # Nothing but the sender's claim supports so many rows.
        raise ValueError(f"a table without columns has {rows} rows")
    names, data = [*(name for name, _ in levels), *map(_name, names)], [*(part for _, part in levels), *data]
    for column in data:
        if len(column) != rows:
            raise ValueError(f"a table declares {rows} rows and has {len(column)}")
    missing = "a table of plain values"
    if package is not None:
        missing = f"{package} is not installed in {HERE}, so this is a sandfork.Table"
    return Table(names, data, rows, missing)


def _distinct(names: list[str]) -> list[str]:
    """Returns the names of columns, with a number appended to repeated names."""
    given = set(names)
    found: dict[str, None] = {}
    numbers: dict[str, int] = {}
    for name in names:
        title = name
        while title in found:
            numbers[name] = numbers.get(name, 1) + 1
            title = f"{name}_{numbers[name]}"
            if title in given:
                title = name
        found[title] = None
    return list(found)


def _name(label: Any) -> str:
    if type(label) is str:
        return label
    return "value" if label is None else cut(safe_repr(label), MAX_NAME)


def _levels(decoder: Decoder, index: Tree, depth: int) -> tuple[list[tuple[str, Any]], int]:
    """Returns the labels of rows as columns, and the number of rows. Plain numbers are omitted."""
    if index.get("type") == "range-index":
        ends = [decoder.field(index, end, int) for end in ("start", "stop", "step")]
        labels = range(*decoder.value(ends, depth + 1))
        name = decoder.value(index.get("name"), depth + 1)
        if len(labels) >= I64 or (name is None and (labels.start, labels.step) == (0, 1)):
            return [], len(labels)
        return [("index" if name is None else _name(name), labels)], len(labels)
    names = [decoder.value(name, depth + 2) for name in decoder.field(index, "names", list)]
    data = [_cells(decoder, part, depth + 2) for part in decoder.field(index, "data", list)]
    if len(names) != len(data) or not data:
        raise ValueError("the names of an index do not match its data")
    spare = ["index"] if len(names) == 1 else [f"level_{place}" for place in range(len(names))]
    titles = [other if name is None else _name(name) for name, other in zip(names, spare)]
    return list(zip(titles, data)), len(data[0])


def _labels(decoder: Decoder, index: Tree, depth: int) -> list[Any]:
    levels, count = _levels(decoder, index, depth)
    decoder.spend(count)
    if not levels:
        return list(range(count))
    data = [list(part) for _, part in levels]
    return data[0] if len(data) == 1 else list(zip(*data))


def _cells(decoder: Decoder, tree: Any, depth: int) -> Any:
    """Returns a column as a sequence of Python objects, by its encoding."""
    decoder.spend(columns.PART)
    if type(tree) is not dict or type(tree.get("dtype")) is not str or depth > MAX_DEPTH:
        raise ValueError("the column of a table is not an object with a dtype")
    tree = of_arrow(tree)
    values, dtype = tree.get("values"), tree["dtype"]
    if type(values) is list:
        return [decoder.value(part, depth + 2) for part in values]
    if dtype in columns.TEXTS or dtype in columns.BLOBS:
        return Texts(columns.read_column(decoder, tree, depth), None, None)
    interval = INTERVAL.fullmatch(dtype)
    if interval is not None:
        left, right = (_cells(decoder, end, depth + 1) for end in ends_of(tree, interval[1]))
        if len(left) != len(right):
            raise ValueError("the left and right ends of intervals differ in number")
        return Intervals((left, right), None, interval[2])
    kind = values.get("dtype") if type(values) is dict else None
    if type(kind) is not str or (kind[1:2] not in ("M", "m") and kind not in columns.ITEMS):
        raise ValueError("the column of a table is not an array of numbers or times")
    data, count = arrays.flat(decoder, values, kind)
    code: Any = "H" if kind == "<f2" else columns.ITEMS.get(kind, "q")
    numbers = data.cast(code)
    if tree.get("categories") is not None:
        return Codes(numbers, None, _cells(decoder, tree["categories"], depth + 1))
    mask = columns.read_mask(decoder, tree, count)
    return Cells(numbers, mask, _converter(decoder, dtype, kind))


def _converter(decoder: Decoder, dtype: str, kind: str) -> Any:
    """Returns the function that converts a number to its value; `None` for the number itself."""
    from datetime import date, datetime, timedelta, timezone

    from . import standard

    timed = columns.TIMED.fullmatch(dtype)
    if kind in ("|b1", "<f2"):
        return bool if kind == "|b1" else columns.half
    if dtype.startswith("period["):
        return lambda count: None if count == NAT else Opaque("pandas.Period", f"<{dtype} number {count}>")
    if dtype == "date":
        return lambda days: _made(lambda: date(1970, 1, 1) + timedelta(days))
    if timed is not None and timed[1] == "time":
        scale = 10**6 / columns.PER_SECOND[timed[2]]
        return lambda count: _made(lambda: (datetime(1970, 1, 1) + timedelta(0, 0, count * scale)).time())
    if kind[1:2] not in ("M", "m"):
        return None
    unit = kind[4:-1]
    if unit not in UNITS:
        return lambda count: None if count == NAT else Opaque("numpy.datetime64", f"{count} of {kind}")
    parts = 10**9 if unit == "ns" else 10**6
    each = round(UNITS[unit] * parts)
    zone = dtype.partition(", ")[2].rstrip("]")
    tz = None
    if zone:
        tz = (None if zone == "UTC" else standard.zone_of(decoder, zone)) or timezone.utc

    def convert(count: int) -> Any:
        if count == NAT:
            return None
        span = _made(lambda: timedelta(microseconds=count * each * 10**6 // parts))
        if kind[1] == "m" or type(span) is not timedelta:
            return span
        if tz is None:
            return _made(lambda: datetime(1970, 1, 1) + span)
        return _made(lambda: (datetime(1970, 1, 1, tzinfo=timezone.utc) + span).astimezone(tz))

    return convert


def _made(make: Any) -> Any:
    """Returns a date or time, or a placeholder if Python cannot represent it."""
    try:
        return make()
    except (OverflowError, ValueError):
        return Opaque("datetime", "<a time outside of the years 1 to 9999>")

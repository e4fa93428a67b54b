"""Decodes frames and series of every library: into the library's own type if it is installed, and otherwise
into a `Table`."""

from __future__ import annotations

import os

from . import arrays, arrow_tables, columns, pandas_columns, polars_frames, tables
from .bounds import MAX_SHOWN, library
from .table import read_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .decode import Decode, Decoder
    from .kinds import Tree

# The cost of showing an empty table and a cell, and the number of padding characters that cost one unit.
TABLE, CELL, PADDING = 1024, 8, 256
# Cells that cost more than a number, although they are not transferred as text.
TIME_CELL, INTERVAL_CELL = 24, 64
# The rows and columns of a table that are shown, with the libraries' default settings.
ROWS, COLUMNS = 60, 20
# Settings of polars that show more.
POLARS = tuple(f"POLARS_FMT_{name}" for name in ("MAX_ROWS", "MAX_COLS", "STR_LEN", "TABLE_CELL_LIST_LEN"))
# The package that creates the values of each `of`.
PANDAS = ("pandas", "pandas-index", "pandas-array")
PACKAGES = {**dict.fromkeys(PANDAS, "pandas"), "polars": "polars", "arrow": "pyarrow"}


def _read_frame(decoder: Decoder, tree: Tree, depth: int) -> Any:
    return _read(decoder, tree, depth, _frame)


def _read_series(decoder: Decoder, tree: Tree, depth: int) -> Any:
    return _read(decoder, tree, depth, _series)


def _read(decoder: Decoder, tree: Tree, depth: int, make: Any) -> Any:
    before = decoder.text_bytes
    value = _value(decoder, tree, depth, make)
    if decoder.shown <= MAX_SHOWN:
        decoder.shown += _work_of_showing(tree, value, decoder.text_bytes - before)
    return value


def _work_of_showing(tree: Tree, value: Any, in_buffers: int) -> int:
    """Returns the cost of a table's `repr()`: of the cells that it shows, and of padding all to the longest
    one."""
    package, unbounded = type(value).__module__.partition(".")[0], float("inf")
    most_rows, most_columns = float(ROWS), float(COLUMNS)
    if package == "pandas":
        option = library("pandas").get_option
        most = [option(f"display.{name}") for name in ("max_rows", "max_seq_items", "max_columns")]
        most_rows = unbounded if None in most[:2] else max(ROWS, *most[:2])
        most_columns = unbounded if most[2] is None else max(COLUMNS, most[2])
    elif package == "polars" and any(map(os.environ.get, POLARS)):
        most_rows = most_columns = unbounded
    elif package == "pyarrow" or (package == "polars" and tree["type"] == "dataframe"):
        # These libraries truncate the texts of cells.
        in_buffers = 0
    rows = int(min(len(value), most_rows))
    parts = tree["data"] if type(tree.get("data")) is list else [tree.get("data")]
    cells = sorted(map(_cell, parts), reverse=True)[: int(min(len(parts), most_columns))]
    above, beside = _labels(tree.get("columns")), _labels(tree.get("index"))
    # Each row and each column that is shown has a label of every level.
    work = TABLE + rows * (sum(cells) + sum(map(_cell, beside))) + len(cells) * sum(map(_cell, above))
    labels = [*above, *beside]
    # The names of fields are part of a column's dtype.
    work += _length([_of_categories(part).get("schema") for part in (*parts, *labels)])
    widths = [_width(part) for part in (*parts, *labels)]
    names = _length([tree.get("columns"), tree.get("name"), tree["index"].get("names")])
    # Includes the line of the labels.
    lines = rows + 1
    for total, longest in (*widths, (names, names), (in_buffers, in_buffers)):
        work += int(min(total, lines * longest)) + lines * longest // PADDING
    return work


def _labels(index: Any) -> list[Any]:
    listed = index.get("data") if type(index) is dict else None
    return listed if type(listed) is list else []


def _of_categories(column: Any) -> Tree:
    """Returns the categories of a categorical column, and any other column unchanged."""
    while type(column) is dict and column.get("categories") is not None:
        column = column["categories"]
    return column if type(column) is dict else {}


def _cell(column: Any) -> int:
    """Returns the cost of showing a cell of a column besides its text."""
    shown = _of_categories(column)
    dtype, values = shown.get("dtype"), shown.get("values")
    kind = values.get("dtype") if type(values) is dict else None
    if type(dtype) is str and dtype.startswith("interval["):
        return INTERVAL_CELL
    is_period = type(dtype) is str and dtype.startswith("period[")
    return TIME_CELL if is_period or (type(kind) is str and kind[1:2] in ("M", "m")) else CELL


def _width(column: Any) -> tuple[float, int]:
    """Returns the characters of a column's cells, and of its longest cell. Numbers count as cells only."""
    if type(column) is not dict:
        return 0, 0
    if column.get("categories") is not None:
        return float("inf"), _width(column["categories"])[1]
    values = column.get("values")
    if type(values) is not list:
        return 0, 0
    if {dict, list} & set(map(type, values)):
        length = _length(values)
        return length, length
    lengths = [len(text) for text in values if type(text) is str]
    return sum(lengths), max(lengths, default=0)


def _length(tree: Tree) -> int:
    """Returns the approximate number of characters of a tree, or more than `MAX_SHOWN`."""
    length, waiting = 0, [tree]
    while waiting and length <= MAX_SHOWN:
        part = waiting.pop()
        if type(part) is str:
            length += len(part)
        elif type(part) is dict or type(part) is list:
            length += CELL * len(part)
            if length <= MAX_SHOWN:
                waiting.extend(part.values() if type(part) is dict else part)
    return length


def _value(decoder: Decoder, tree: Tree, depth: int, make: Any) -> Any:
    of = "pandas" if tree.get("of") is None else tree["of"]
    if of == "numpy":
        return arrays.read_objects(decoder, tree, depth)
    package = PACKAGES.get(of) if type(of) is str else None
    found = None if package is None else library(package)
    if found is not None and package == "pandas" and _needs_arrow(tree) and library("pyarrow") is None:
        return read_table(decoder, tree, depth, "pyarrow")
    if found is None:
        return read_table(decoder, tree, depth, package)
    try:
        return make(decoder, tree, depth, of, found)
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # polars raises this for a panic in its own code, which must not end the caller.
        raise ValueError(f"{package} rejected a table: {type(error).__name__}: {error}") from None


def _needs_arrow(tree: Tree) -> bool:
    """Returns whether a column or label of a pandas frame is Arrow-backed."""
    parts = tree["data"] if type(tree.get("data")) is list else [tree.get("data")]
    labels = [part for name in ("columns", "index") for part in _labels(tree.get(name))]
    return any(map(pandas_columns.needs_arrow, (*parts, *labels)))


def _frame(decoder: Decoder, tree: Tree, depth: int, of: str, found: Any) -> Any:
    if of == "pandas":
        return tables.read_frame(decoder, tree, depth)
    parts = decoder.field(tree, "data", list)
    data = [columns.read_column(decoder, part, depth + 2) for part in parts]
    names = columns.read_names(decoder, tree, depth)
    columns.check_rows(tree, data)
    if len(names) != len(data):
        raise ValueError(f"a table declares {len(names)} columns and has {len(data)}")
    if of == "polars":
        return polars_frames.make_frame(decoder, found, names, data)
    return arrow_tables.make_table(decoder, found, names, data)


def _series(decoder: Decoder, tree: Tree, depth: int, of: str, found: Any) -> Any:
    if of in PANDAS:
        return tables.read_series(decoder, tree, depth)
    column = columns.read_column(decoder, tree.get("data"), depth + 1)
    columns.check_rows(tree, [column])
    if of == "arrow":
        return arrow_tables.make_array(decoder, found, column)
    name = decoder.field(tree, "name", str)
    return polars_frames.make_series(decoder, found, name, column)


DECODERS: dict[str, Decode] = {"dataframe": _read_frame, "series": _read_series}

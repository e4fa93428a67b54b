"""Decodes frames and series of every library: into the library's own where it is installed, and
otherwise into a `Table`."""

from __future__ import annotations

from . import arrays, arrow_tables, columns, polars_frames, tables
from .bounds import library
from .table import read_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .decode import Decode, Decoder
    from .kinds import Tree

# The package that makes the values of each `of`.
PANDAS = ("pandas", "pandas-index", "pandas-array")
PACKAGES = {**dict.fromkeys(PANDAS, "pandas"), "polars": "polars", "arrow": "pyarrow"}


def _read_frame(decoder: Decoder, tree: Tree, depth: int) -> Any:
    return _read(decoder, tree, depth, _frame)


def _read_series(decoder: Decoder, tree: Tree, depth: int) -> Any:
    return _read(decoder, tree, depth, _series)


def _read(decoder: Decoder, tree: Tree, depth: int, make: Any) -> Any:
    of = "pandas" if tree.get("of") is None else tree["of"]
    if of == "numpy":
        return arrays.read_objects(decoder, tree, depth)
    package = PACKAGES.get(of) if type(of) is str else None
    found = None if package is None else library(package)
    if found is None:
        return read_table(decoder, tree, depth, package)
    try:
        return make(decoder, tree, depth, of, found)
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # What polars raises for a failure in its own code, which must not end the caller.
        raise ValueError(f"{package} refused a table: {type(error).__name__}: {error}") from None


def _frame(decoder: Decoder, tree: Tree, depth: int, of: str, found: Any) -> Any:
    if of == "pandas":
        return tables.read_frame(decoder, tree, depth)
    parts = decoder.field(tree, "data", list)
    data = [columns.read_column(decoder, part, depth + 2) for part in parts]
    names = columns.read_names(decoder, tree, depth)
    columns.check_rows(tree, data)
    if len(names) != len(data):
        raise ValueError(f"a table of {len(names)} columns came with {len(data)}")
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

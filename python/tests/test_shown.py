"""The text of values that hold arrays and tables. A guest sends them at little cost, and the caller would pay
for their `repr()`."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from sandfork import Execution, Result, _values

from .test_executions import ended

numpy: Any = pytest.importorskip("numpy")
pandas: Any = pytest.importorskip("pandas")

# The maximum length of a displayed value: each unit of work produces few characters.
LONGEST = 40 * _values.MAX_SHOWN


def received(value: Any, shown: tuple[Result, ...] = ()) -> Execution:
    """The execution of a cell with this value, as it arrives."""
    tree, buffers = _values.encode(value)
    return ended(value=tree, buffers=[memoryview(bytes(buffer)) for buffer in buffers], shown=shown)


def frame(**columns: Any) -> Any:
    return pandas.DataFrame(columns)


def strings(count: int, size: int) -> Any:
    return numpy.full(count, b"\1" * size, f"S{size}")


def levels(count: int, labels: Any) -> Any:
    """An index of several levels, each of these labels, which have no text that crosses."""
    index = pandas.Index(labels)
    return pandas.MultiIndex([index] * count, [range(len(index))] * count, verify_integrity=False)


def objects(*items: Any) -> Any:
    array = numpy.empty(len(items), object)
    array[:] = items
    return array


LARGE: dict[str, Callable[[], Any]] = {
    "texts of an array": lambda: (strings(1000, 16000),),
    "texts of a bare array": lambda: strings(300, 10000),
    "dimensions": lambda: (strings(1000, 1000).reshape(10, 10, 10),),
    "arrays of numbers": lambda: [numpy.arange(1000.0) * 1.1 for _ in range(100)],
    "small arrays": lambda: [numpy.zeros(1) for _ in range(2000)],
    "frames": lambda: [frame(a=[1]) for _ in range(200)],
    "texts of cells": lambda: [frame(a=["\1" * 40000] * 3)],
    "cells of a bare frame": lambda: frame(a=["\1" * 20000] * 30),
    "a series": lambda: {"key": pandas.Series(["\1" * 20000] * 30)},
    "labels of rows": lambda: [pandas.Series([1] * 20, index=["\1" * 20000] * 20)],
    "an index": lambda: [pandas.Index(["\1" * 20000] * 20)],
    "a label of a column": lambda: [frame(**{"a" * 100_000: [1, 2]})],
    "a label of an empty frame": lambda: [frame(**{"a" * 100_000: []})],
    "a category": lambda: [frame(a=pandas.Categorical(["\1" * 2000] * 500))],
    "lists in cells": lambda: [frame(a=[[1] * 10000])],
    "arrays in cells": lambda: [frame(a=[strings(10, 10000)])],
    "objects of an array": lambda: (objects(*["\1" * 20000] * 30),),
    "levels of numbers": lambda: [pandas.Series(range(59), levels(200, range(59)))],
    "levels of an index": lambda: [levels(200, range(59))],
    "levels of columns": lambda: [pandas.DataFrame([range(19)], columns=levels(500, range(19)))],
    "levels of intervals": lambda: [pandas.Series(range(59), levels(20, pandas.interval_range(0, 59)))],
    "levels of moments": lambda: [
        pandas.Series(range(59), levels(60, pandas.date_range("2020", periods=59)))
    ],
    "columns of intervals": lambda: [
        pandas.DataFrame({name: pandas.interval_range(0, 59) for name in range(20)})
    ],
    "categories of intervals": lambda: [
        pandas.DataFrame({name: pandas.Categorical(pandas.interval_range(0, 59)) for name in range(20)})
    ],
    "frames in cells": lambda: [frame(a=objects(*[frame(a=[1])] * 100))],
}
SMALL: dict[str, Callable[[], Any]] = {
    "an array": lambda: (numpy.array([1.5, 2]),),
    "a large array": lambda: [numpy.zeros(100_000), numpy.zeros((100, 1000))],
    "a scalar": lambda: {"x": numpy.float64(1.5), "y": numpy.bytes_(b"z" * 100_000)},
    "a frame": lambda: [frame(a=[1, 2], b=["x", "y"])],
    "a large frame": lambda: (frame(a=range(20_000), b=["some text"] * 20_000),),
    "a wide frame": lambda: (pandas.DataFrame(numpy.zeros((50, 2000))),),
    "a long cell": lambda: [frame(a=["x" * 3000] + ["y"] * 99)],
    "categories": lambda: [frame(a=pandas.Categorical(["yes", "no"] * 5000))],
    "dates": lambda: [pandas.Series(pandas.date_range("2020", periods=10_000))],
    "an index": lambda: (pandas.Index(["a", "b"] * 5000),),
    "levels": lambda: [pandas.Series(range(59), levels(3, range(59)))],
    "levels of intervals": lambda: [pandas.Series(range(59), levels(3, pandas.interval_range(0, 59)))],
    "dates of rows": lambda: [pandas.Series(1.5, pandas.date_range("2020", periods=10_000))],
    "plain values": lambda: ["x" * 1_000_000, list(range(100_000))],
}


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE)
def test_large_library_value_has_a_summary(make: Callable[[], Any]) -> None:
    execution = received(make())
    kind = type(execution.value).__name__
    assert execution.text == f"<{kind}, too large to show>"
    assert execution.to_dict(compact=True)["value"] == execution.text
    assert execution.text in repr(execution)


@pytest.mark.parametrize("make", SMALL.values(), ids=SMALL)
def test_an_ordinary_value_is_shown(make: Callable[[], Any]) -> None:
    execution = received(make())
    assert execution.text == repr(execution.value)
    assert len(execution.text) < LONGEST


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE)
def test_the_text_of_the_guest_is_kept(make: Callable[[], Any]) -> None:
    own = Result({"text/plain": "as the guest shows it"}, is_main_result=True)
    execution = received(make(), (own,))
    assert execution.text == "as the guest shows it"
    assert execution.to_dict(compact=True)["value"] == execution.text


@pytest.mark.parametrize(
    "value", [{"a": pandas.Categorical(["\1" * 100] * 10_000)}, {"a" * 2000: range(20_000)}], ids=len
)
def test_settings_of_pandas_that_show_more_count(value: Any) -> None:
    assert received([frame(**value)]).text.startswith("[ ")
    with pandas.option_context("display.max_rows", None, "display.max_colwidth", None):
        assert received([frame(**value)]).text == "<list, too large to show>"


def test_settings_of_numpy_that_show_more_count() -> None:
    value = [numpy.zeros(50_000)]
    assert received(value).text == repr(value)
    with numpy.printoptions(threshold=10**9):
        assert received(value).text == "<list, too large to show>"


def test_frames_of_other_libraries() -> None:
    polars: Any = pytest.importorskip("polars")
    pyarrow: Any = pytest.importorskip("pyarrow")
    texts = ["\1" * 20_000] * 30
    for small in (polars.DataFrame({"a": texts}), pyarrow.table({"a": texts}), pyarrow.array(texts)):
        # The `repr()` of these truncates the text of cells.
        execution = received([small])
        assert execution.text == repr(execution.value)
    for large in (polars.Series([texts] * 3), polars.DataFrame({"a": [[texts]] * 3})):
        assert received([large]).text == "<list, too large to show>"
    for kind in (lambda: polars.DataFrame({"a": [1]}), lambda: pyarrow.table({"a": [1]})):
        assert received([kind() for _ in range(200)]).text == "<list, too large to show>"
    with polars.Config(tbl_rows=-1, fmt_str_lengths=100_000):
        assert received([polars.DataFrame({"a": texts})]).text == "<list, too large to show>"


def test_field_names_are_shown_with_types() -> None:
    pyarrow: Any = pytest.importorskip("pyarrow")
    few, many = (
        pyarrow.array([], pyarrow.struct([("f" * size, pyarrow.int64())])) for size in (100, 100_000)
    )
    for wrapped in (
        lambda array: array,
        lambda array: pandas.Series(array, dtype=pandas.ArrowDtype(array.type)),
    ):
        execution = received([wrapped(few)])
        assert execution.text == repr(execution.value)
        assert received([wrapped(many)]).text == "<list, too large to show>"


def test_table_without_its_library_counts_towards_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_values.frames, "library", lambda name: None)
    assert received([frame(a=["text"] * 100)]).text.startswith("[   a")
    assert received([frame(a=[b"\1" * 50_000] * 3)]).text == "<list, too large to show>"

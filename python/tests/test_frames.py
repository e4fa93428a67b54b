"""Frames of polars and pandas, tables of Arrow: round trips, missing packages, and hostile senders."""

from __future__ import annotations

import datetime
import decimal
import json
import random
import sys
import warnings
from typing import Any

import pytest

import sandfork
from sandfork import Table, _values

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

NOW = datetime.datetime(2024, 2, 29, 1, 2, 3, 4)
ONE, TWO = decimal.Decimal("1.10"), decimal.Decimal("-2.00")


def polars_frame() -> Any:
    moments = [NOW, None, NOW]
    return polars.DataFrame(
        {
            "int": [1, None, 3],
            "byte": polars.Series([1, 2, 255], dtype=polars.UInt8),
            "float": [1.5, None, -0.0],
            "bool": [True, None, False],
            "text": ["x", None, "é\U0001f600"],
            "bytes": [b"\0", b"", None],
            "date": [datetime.date(2020, 1, 1), None, datetime.date(1, 1, 1)],
            "moment": moments,
            "zoned": polars.Series(moments, dtype=polars.Datetime("ms", "Europe/Vienna")),
            "span": [datetime.timedelta(1), None, datetime.timedelta(-3)],
            "time": [datetime.time(1, 2, 3), None, datetime.time(0)],
            "category": polars.Series(["a", "b", None], dtype=polars.Categorical),
            "enum": polars.Series(["q", None, "p"], dtype=polars.Enum(["p", "q"])),
            "list": [[1, 2], None, []],
            "struct": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
            "array": polars.Series([[1, 2], None, [3, 4]], dtype=polars.Array(polars.Int16, 2)),
            "decimal": polars.Series([ONE, None, TWO], dtype=polars.Decimal(10, 2)),
            "null": [None] * 3,
        }
    )


def arrow_table() -> Any:
    texts, moments = ["x", None, "yy"], [5, None, 6]
    return pyarrow.table(
        {
            "int": pyarrow.array([1, None, 3]),
            "large": pyarrow.array([1, None, 2**64 - 1], pyarrow.uint64()),
            "half": pyarrow.array([1.5, None, 2], pyarrow.float16()),
            "bool": [True, None, False],
            "text": pyarrow.array(texts),
            "large text": pyarrow.array(texts, pyarrow.large_string()),
            "bytes": pyarrow.array([b"x", None, b""]),
            "category": pyarrow.array(["a", "b", None]).dictionary_encode(),
            "date": pyarrow.array([datetime.date(2020, 1, 1), None, datetime.date(1, 1, 1)]),
            "moment": pyarrow.array(moments, pyarrow.timestamp("s")),
            "zoned": pyarrow.array(moments, pyarrow.timestamp("ns", "Europe/Vienna")),
            "second": pyarrow.array(moments, pyarrow.time32("s")),
            "time": pyarrow.array(moments, pyarrow.time64("us")),
            "span": pyarrow.array(moments, pyarrow.duration("ms")),
            "decimal": pyarrow.array([ONE, None, TWO], pyarrow.decimal128(10, 2)),
            "null": pyarrow.nulls(3),
            "list": [[1], None, [2, 3]],
            "struct": [{"a": 1}, None, {"a": None}],
        }
    )


def sent(value: object) -> tuple[Any, list[bytes]]:
    tree, buffers = _values.encode(value)
    return json.loads(json.dumps(tree, allow_nan=False)), [bytes(buffer) for buffer in buffers]


def read(tree: Any, buffers: list[bytes]) -> Any:
    return _values.decode(tree, [memoryview(buffer) for buffer in buffers])


def crossed(value: object) -> Any:
    return read(*sent(value))


@pytest.fixture(params=["with numpy", "without numpy"])
def numpy_or_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without numpy":
        monkeypatch.setattr(_values.polars_frames, "library", _without("numpy"))
        monkeypatch.setattr(_values.columns, "library", _without("numpy"))
        monkeypatch.setattr(_values.table, "HERE", "the caller's Python", raising=True)


def _without(*missing: str) -> Any:
    return lambda name: None if name in missing else _values.bounds.library(name)


@pytest.mark.usefixtures("numpy_or_not")
def test_polars_frames_and_series_round_trip() -> None:
    frame = polars_frame()
    for value in (frame, frame[1:], frame[:0], polars.DataFrame()):
        found = crossed(value)
        assert found.schema == value.schema
        assert found.equals(value)
    for series in frame.get_columns():
        found = crossed(series)
        assert (found.name, found.dtype) == (series.name, series.dtype)
        assert found.equals(series)
    many = polars.Series(["x" * (number % 7) for number in range(200_000)])
    assert crossed(many).equals(many)


def test_arrow_tables_and_arrays_round_trip() -> None:
    table = arrow_table()
    twice = pyarrow.concat_tables([table, table])
    for value in (table, table.slice(1), table.slice(1, 1), table.slice(3), twice, pyarrow.table({})):
        found = crossed(value)
        assert found.schema.equals(value.schema)
        assert found.to_pylist() == value.to_pylist()
    for column in table.columns:
        found = crossed(column)
        assert found.type == column.type
        assert found.to_pylist() == column.to_pylist()
    assert crossed(table.to_batches()[0]).equals(table)
    assert crossed(pyarrow.scalar(5)) == 5


@pytest.mark.parametrize(
    "value",
    [
        pandas.date_range("2020", periods=3),
        pandas.date_range("2020", periods=3, tz="Europe/Vienna"),
        pandas.Index(["a", "b"], name="q"),
        pandas.RangeIndex(5),
        pandas.to_timedelta([1, 2]),
        pandas.period_range("2020", periods=3, freq="Q"),
        pandas.PeriodIndex(["2020-01", None], freq="2M"),
        pandas.MultiIndex.from_tuples([(1, "a"), (2, "b")], names=["x", None]),
        pandas.array([1, None], dtype="Int64"),
        pandas.date_range("2020", periods=3).array,
        pandas.Categorical(["a", "b"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_pandas_indexes_and_arrays_round_trip(value: Any) -> None:
    found = crossed(value)
    assert type(found) is type(value)
    assert found.equals(value)


def binned() -> Any:
    """Data that is cut into bins, with each form of bin labels in pandas."""
    numbers = pandas.Series([1, 5, 9, 2, None], name="n")
    frame = pandas.DataFrame({"n": numbers, "bin": pandas.cut(numbers, 3), "group": list("abaab")})
    grouped = frame.groupby(["group", "bin"], observed=True)["n"].sum()
    vienna = pandas.Timestamp("2024-03-30", tz="Europe/Vienna")
    ends = pandas.arrays.IntervalArray.from_tuples([(0.0, 1.0), None, (-1.0, 1.0), (0.0, 1.0)])
    return [
        frame,
        pandas.qcut(numbers, 2),
        frame.groupby("bin", observed=False)["n"].agg(["sum", "mean"]),
        frame.pivot_table("n", "group", "bin", observed=False),
        grouped,
        grouped.reset_index(),
        numbers.value_counts(bins=2),
        pandas.cut(pandas.Series(pandas.date_range("2024", periods=5)), 3).value_counts(),
        pandas.interval_range(vienna, periods=3),
        pandas.interval_range(pandas.Timedelta(0), periods=3, freq="h"),
        pandas.IntervalIndex.from_tuples([(0, 1), (2, 3), (0, 1)], closed="both", name="x"),
        pandas.Series(ends),
        pandas.MultiIndex.from_arrays([ends, [4, 3, 2, 1]]),
        ends,
    ]


def sparse() -> Any:
    numpy = _values.bounds.library("numpy")
    array = pandas.arrays.SparseArray
    flags = pandas.get_dummies(pandas.Series(list("aba")), sparse=True)
    half = array(numpy.array([0, 1.5, 0], "f4"), fill_value=0)
    return [
        flags,
        pandas.DataFrame({"a": array([0, 1, 0]), "b": half, "c": ["x", "y", "z"]}),
        pandas.Series(array([7, None, 7], fill_value=7.0)),
        pandas.Series(array(numpy.array([0, 200], "u1"))),
        pandas.Index(array([0, 0, 1])),
        pandas.MultiIndex.from_arrays([array([0, 0, 1]), [3, 2, 1]]),
        half,
    ]


def of_arrow() -> Any:
    frame = arrow_table().to_pandas(types_mapper=pandas.ArrowDtype)
    labels = pandas.Index(frame["text"].array, name="label")
    return [
        frame,
        frame[1:],
        frame[:0],
        *(frame[name] for name in frame),
        pandas.DataFrame({"plain": [1, 2, 3], "arrow": frame["int"]}),
        pandas.Series([1, 2, 3], labels),
        pandas.Index(frame["zoned"].array),
        pandas.MultiIndex.from_arrays([frame["int"].array, labels.array, frame["date"].array]),
        frame["text"].astype("category"),
        frame["decimal"].array,
    ]


@pytest.mark.parametrize("made", [binned, sparse, of_arrow])
def test_bins_sparse_and_arrow_columns_round_trip(made: Any) -> None:
    for value in made():
        found = crossed(value)
        assert type(found) is type(value)
        if isinstance(value, pandas.DataFrame):
            pandas.testing.assert_frame_equal(found, value)
        elif isinstance(value, pandas.Series):
            pandas.testing.assert_series_equal(found, value)
        elif isinstance(value, pandas.Index):
            pandas.testing.assert_index_equal(found, value)
        else:
            pandas.testing.assert_extension_array_equal(found, value)


@pytest.mark.parametrize("storage", ["python", "pyarrow"])
@pytest.mark.parametrize("missing", [pandas.NA, float("nan")], ids=["NA", "nan"])
def test_pandas_texts_keep_type_and_missing_values(storage: str, missing: Any) -> None:
    dtype = pandas.StringDtype(storage, na_value=missing)
    series = pandas.Series(["a", None, "é"], pandas.Index(["x", None, "y"], dtype=dtype), dtype=dtype)
    pandas.testing.assert_series_equal(crossed(series), series)
    frame = pandas.DataFrame({"n": [1]}, columns=pandas.Index(["n"], dtype=dtype))
    pandas.testing.assert_frame_equal(crossed(frame), frame)
    twice = pandas.MultiIndex.from_arrays([series.array, [1, 2, 3]])
    pandas.testing.assert_index_equal(crossed(twice), twice)


def test_objects_stay_objects_despite_typed_texts() -> None:
    frame = pandas.DataFrame({"a": pandas.Series(["x", None], dtype=object)})
    with warnings.catch_warnings():
        # pandas 3 deprecates the option, because it always infers strings.
        warnings.simplefilter("ignore")
        pandas.set_option("future.infer_string", True)
    try:
        for value in (frame, frame["a"]):
            found = crossed(value)
            assert type(found) is type(value)
            assert found.to_dict() == value.to_dict()
    finally:
        if pandas.__version__.startswith("2."):
            pandas.reset_option("future.infer_string")


def test_texts_of_pandas_3_are_objects_where_pandas_has_no_such_type(monkeypatch: pytest.MonkeyPatch) -> None:
    dtype = pandas.StringDtype("pyarrow", na_value=float("nan"))
    sent_by_3 = sent(pandas.Series(["a", None], dtype=dtype))

    def older(storage: str) -> None:
        """Has no `na_value`."""

    monkeypatch.setattr(pandas, "StringDtype", older)
    found = read(*sent_by_3)
    assert found.dtype == object
    assert found[0] == "a"
    assert found.isna().tolist() == [False, True]


def test_datetime_arrays_round_trip() -> None:
    numpy = pytest.importorskip("numpy")
    for dtype in ("O", "M8[us]", "M8[D]"):
        array = numpy.array([NOW, NOW], dtype=dtype)
        found = crossed(array)
        assert found.dtype == array.dtype
        assert (found == array).all()
    assert isinstance(crossed(numpy.array([object()])), sandfork.Opaque)
    mixed = pandas.DataFrame({"a": ["x", "y"], "b": [1, 2]}).values
    assert crossed(mixed).tolist() == [["x", 1], ["y", 2]]
    tree, buffers = sent(mixed)
    for shape in ([2], [4, 2], [-2, -2], [2**62, 0], [2, 2, True], [], "x", [2.0, 2]):
        tree["data"]["schema"] = shape
        with pytest.raises(ValueError, match="shape"):
            read(tree, buffers)


_PAIRS = pyarrow.map_(pyarrow.string(), pyarrow.int64())


def test_unsupported_column_is_named() -> None:
    pairs = pyarrow.array([[("a", 1)]], _PAIRS)
    found = crossed(pyarrow.table({"pairs": pairs}))
    assert isinstance(found, sandfork.Opaque)
    assert "column 'pairs' is of type map<string, int64>, which cannot be transferred" in found.repr


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            lambda: pandas.DataFrame({"a": pandas.arrays.SparseArray([0, 1], fill_value=float("nan"))}),
            "column 'a' is of type Sparse[int64, nan]",
        ),
        (
            lambda: pandas.Series(polars_frame()["int"].to_numpy().astype("longdouble")),
            "the series is of type float128",
        ),
        (
            lambda: pandas.Series([[("a", 1)]], dtype=pandas.ArrowDtype(_PAIRS)),
            "the series is of type map<string, int64>",
        ),
    ],
)
def test_unsupported_pandas_column_is_named(value: Any, said: str) -> None:
    found = crossed(value())
    assert isinstance(found, sandfork.Opaque)
    assert f"<not passed as a value: {said}, which cannot be transferred: convert it first" in found.repr


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda numpy: numpy.zeros(1, "i4,f8"), "an array of dtype [('f0', '<i4'), ('f1', '<f8')] cannot"),
        (lambda numpy: numpy.zeros(1, "longdouble")[0], "a scalar of dtype float128 cannot"),
        (
            lambda numpy: numpy.ma.array([1, 2], mask=[0, 1]),
            "class MaskedArray cannot be transferred: send its .filled(), or its .data and its .mask",
        ),
        (
            lambda numpy: type("Own", (pandas.Series,), {})([1]),
            "a table of the class Own cannot be transferred: send what pandas.Series() makes of it",
        ),
        (lambda numpy: type("Own", (pandas.DataFrame,), {})(), "class Own cannot be transferred"),
        (lambda numpy: pandas.DataFrame({"o": [{"a": i} for i in range(600_000)]}), "too large to transfer"),
        (lambda numpy: numpy.array([object()]), "an array of objects that"),
    ],
)
def test_untransferable_array_gives_the_reason(make: Any, said: str) -> None:
    found = crossed(make(pytest.importorskip("numpy")))
    assert isinstance(found, sandfork.Opaque)
    assert "\n<not passed as a value: " in found.repr
    assert said in found.repr


def test_times_in_unnamed_zones_round_trip() -> None:
    zone = datetime.timezone(datetime.timedelta(minutes=90), "no name")
    found = crossed(pandas.Series([pandas.Timestamp(NOW, tz=zone)]))
    assert found[0] == NOW.replace(tzinfo=zone)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that has none of the packages."""
    trees = {name: sent(value) for name, value in _senders().items()}
    for name in ("pandas", "polars", "pyarrow", "numpy", "PIL"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sys.modules[__name__], "_SENT", trees, raising=False)


_SENT: dict[str, tuple[Any, list[bytes]]] = {}


def _senders() -> dict[str, Any]:
    frame = pandas.DataFrame(
        {
            "n": [1, 2],
            "f": [0.5, float("inf")],
            "s": ["a", None],
            "d": pandas.to_datetime(["2024-01-01", None]),
            "z": pandas.date_range("2024", periods=2, tz="Europe/Vienna"),
            "t": pandas.to_timedelta([1, 2], unit="h"),
            "c": pandas.Categorical(["x", None]),
            "m": pandas.array([1, None], dtype="Int64"),
            "b": [True, False],
            "i": pandas.arrays.IntervalArray.from_tuples([(0.0, 1.5), None], closed="left"),
            "w": pandas.interval_range(pandas.Timestamp("2024"), periods=2),
            "p": pandas.arrays.SparseArray([0, 7]),
            "a": pandas.array([1, None], dtype="int64[pyarrow]"),
            "as": pandas.array(["x", None], dtype=pandas.ArrowDtype(pyarrow.string())),
        },
        index=pandas.Index(["one", "two"], name="key"),
    )
    return {
        "pandas": frame,
        "polars": polars_frame(),
        "arrow": arrow_table(),
        "series": frame["n"],
        "index": frame.index,
        "twice": pandas.DataFrame([[1, 2, 3, 4]], columns=["a", "a", "a_2", "a"]),
        "dates": pandas.date_range("2024", periods=2),
        "levels": frame.set_index(["n", "b"]).T,
        "interval": pandas.Interval(0, 1),
        "missing": [pandas.NA],
    }


@pytest.mark.usefixtures("alone")
def test_a_frame_without_its_package_is_a_table_that_prints_and_iterates() -> None:
    vienna = datetime.timezone(datetime.timedelta(hours=1))
    found = read(*_SENT["pandas"])
    assert isinstance(found, Table)
    assert len(found) == 2
    assert found.columns == ("key", "n", "f", "s", "d", "z", "t", "c", "m", "b", "i", "w", "p", "a", "as")
    first, second = found
    assert first == {
        "key": "one",
        "n": 1,
        "f": 0.5,
        "s": "a",
        "d": datetime.datetime(2024, 1, 1),
        "z": datetime.datetime(2024, 1, 1, tzinfo=vienna),
        "t": datetime.timedelta(hours=1),
        "c": "x",
        "m": 1,
        "b": True,
        "i": sandfork.Opaque("pandas.Interval", "[0.0, 1.5)"),
        "w": sandfork.Opaque("pandas.Interval", "(2024-01-01 00:00:00, 2024-01-02 00:00:00]"),
        "p": 0,
        "a": 1,
        "as": "x",
    }
    assert [second[name] for name in ("s", "d", "c", "m", "i", "a", "as")] == [None] * 7
    assert found["n"] == [1, 2]
    assert found.to_dict()["key"] == ["one", "two"]
    assert "[2 rows x 15 columns; pandas is not installed in the caller's Python, so" in repr(found)
    assert repr(found).splitlines()[0].split() == list(found.columns)
    assert "<th>key</th>" in found._repr_html_()
    assert read(*_SENT["series"]).to_dict() == {"key": ["one", "two"], "n": [1, 2]}
    assert read(*_SENT["index"]).to_dict() == {"key": ["one", "two"]}
    assert read(*_SENT["dates"])["index"][1] == datetime.datetime(2024, 1, 2)
    assert len(read(*_SENT["levels"])) == 12
    # The value returns as a table.
    assert crossed(found) == found


def scalars() -> list[Any]:
    vienna = pandas.Timestamp("2024-01-01 00:00:00.123456789", tz="Europe/Vienna")
    return [
        pandas.Interval(0, 1),
        pandas.Interval(0, 1.5, "both"),
        pandas.Interval(pandas.Timestamp("2024"), pandas.Timestamp("2025"), "left"),
        pandas.Interval(vienna, pandas.Timestamp("2025", tz="Europe/Vienna")),
        pandas.Interval(pandas.Timedelta(1), pandas.Timedelta(days=2)),
        pandas.cut(pandas.Series([1, 5, 9]), 3).iloc[0],
        pandas.Period("2024", "Q"),
        pandas.Period("2024-01-01 10:15", "15min"),
        vienna,
    ]


def test_pandas_scalars_round_trip() -> None:
    for value in scalars():
        found = crossed(value)
        assert type(found) is type(value)
        assert found == value
        assert crossed({value: [value]}) == {value: [value]}
    assert crossed([pandas.NA])[0] is pandas.NA
    mixed = pandas.Series([*scalars(), pandas.NA, "x"], dtype=object)
    pandas.testing.assert_series_equal(crossed(mixed), mixed)


@pytest.mark.usefixtures("alone")
def test_pandas_scalars_are_printed_without_pandas() -> None:
    assert repr(read(*_SENT["interval"])) == "Interval(0, 1, closed='right')"
    assert repr(read(*_SENT["missing"])) == "[<NA>]"


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("Interval", []),
        ("Interval", ["middle", 1, 2]),
        ("Interval", ["right", 2, 1]),
        ("Interval", ["right", "a", "b"]),
        ("Interval", ["right", 1, {"type": "int", "hex": "f" * 200_000}]),
        ("Interval", ["period[M]", 1]),
        ("Period", ["period[M]", 1.5]),
        ("Period", ["M", 1]),
        ("Timestamp", ["datetime64[ns]", 1]),
        ("NAType", [1]),
        ("Anything", ["right", 1, 2]),
        ("Interval", {"type": "dict", "items": []}),
    ],
)
def test_hostile_pandas_scalars_are_rejected(kind: str, parts: Any) -> None:
    with pytest.raises(ValueError, match="parts|end|left side"):
        _values.decode({"type": "opaque", "name": f"pandas.{kind}", "repr": "", "parts": parts})


def test_a_frame_of_arrow_without_arrow_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pandas.array([1, None], dtype="int64[pyarrow]")
    labels = pandas.Categorical.from_codes([0, 1], pandas.Index([1, 2], dtype="int64[pyarrow]"))
    trees = [sent(pandas.DataFrame({"a": arrow})), sent(pandas.Series([1, 2], labels))]
    plain = sent(pandas.Series(["x", None], dtype="string[pyarrow]"))
    monkeypatch.setattr(_values.frames, "library", _without("pyarrow"))
    monkeypatch.setattr(_values.pandas_columns, "library", _without("pyarrow"))
    for tree in trees:
        found = read(*tree)
        assert isinstance(found, Table)
        assert "pyarrow is not installed in the caller's Python" in repr(found)
    assert read(*trees[0])["a"] == [1, None]
    # The strings of this series need no Arrow.
    assert read(*plain).dtype == pandas.StringDtype("python")


def pandas_column(dtype: Any, *arrays: Any, **more: Any) -> tuple[Any, list[bytes]]:
    """A series of pandas, whose values are an array or several."""
    trees, buffers = zip(*(sent(array) for array in arrays))
    for number, tree in enumerate(trees):
        tree["buffer"] = number
    values = trees[0] if len(trees) == 1 else {"type": "tuple", "items": list(trees)}
    index = {"type": "range-index", "start": 0, "stop": 2, "step": 1, "name": None}
    data = {"dtype": dtype, "values": values, **more}
    tree = {"type": "series", "name": None, "index": index, "data": data}
    return tree, [buffer for (buffer,) in buffers]


def test_categories_round_trip_in_pandas_before_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pandas.Index, "asi8", None, raising=False)
    binned_levels = pandas.MultiIndex.from_arrays([pandas.interval_range(0, 3), list("abc")])
    assert crossed(binned_levels).equals(binned_levels)
    for labels in (["b", "a"], [1, 2], pandas.date_range("2024", periods=2)):
        series = pandas.Series(pandas.Categorical(labels))
        pandas.testing.assert_series_equal(crossed(series), series)


def test_hostile_pandas_columns_are_rejected() -> None:
    numpy = pytest.importorskip("numpy")
    up, down = numpy.array([0.0, 1.0]), numpy.array([1.0, 0.0])
    name = "interval[float64, right]"
    for tree, why in (
        (pandas_column(name, up, down), "left side of interval must be <= right side"),
        (
            pandas_column(name, up, numpy.array([1.0, numpy.nan])),
            "missing values must be missing in the same",
        ),
        (pandas_column(name, up, down, down), "not an array of intervals"),
        (pandas_column(name, up), "not an array of intervals"),
        (pandas_column(name, up, down[:1]), "must have the same length"),
        (pandas_column("interval[datetime64[ns, Europe/Vienna], right]", up, up), "array of timestamps"),
        (pandas_column("interval[object, right]", up, up), "not a one-dimensional array"),
        (
            pandas_column("interval[int64, left]", numpy.zeros(2, "i1"), numpy.ones(2, "i1")),
            "ends of another type",
        ),
        (pandas_column("interval[datetime64[ns], left]", up, up), "ends of another type"),
        (pandas_column("sparse", up, schema="x"), "fill value of a sparse column is not"),
        (pandas_column("sparse", up, schema=1), "fill value of a sparse column is not"),
        (pandas_column("sparse", numpy.zeros(2, "u1"), schema=300), "OverflowError|out of bounds"),
        (pandas_column("sparse", numpy.zeros(2, "M8[s]"), schema=0), "fill value of a sparse column is not"),
        (pandas_column("arrow[int64]", up), "an array of another type"),
        (pandas_column("arrow[date]", numpy.full(2, 2**31 - 1, "i4")), "a timestamp outside"),
        (pandas_column("arrow[arrow[int64]]", up), "unknown type"),
    ):
        with pytest.raises(ValueError, match=why):
            read(*tree)


def test_bins_that_overlap_take_work_to_read() -> None:
    numpy = pytest.importorskip("numpy")
    ends = pandas.IntervalIndex.from_arrays(numpy.zeros(10_000), numpy.arange(10_000.0))
    with pytest.raises(ValueError, match="too much work"):
        crossed(pandas.Series(pandas.Categorical.from_codes([0], ends)))
    ordered = pandas.IntervalIndex.from_breaks(numpy.arange(100_000.0))
    assert len(crossed(pandas.Series(pandas.Categorical.from_codes([0], ordered))).cat.categories) == 99_999


def test_small_numbers_that_pandas_makes_large_take_work_to_read() -> None:
    numpy = pytest.importorskip("numpy")
    few = numpy.arange(1600, dtype="i8") // 2
    for value, least in (
        (pandas.Series(pandas.arrays.SparseArray(few.astype("i1"), fill_value=0)), 1600 // 4),
        (pandas.MultiIndex.from_arrays([few.astype("i2"), few]), 2 * 800 // 4),
        (pandas.MultiIndex.from_arrays([pandas.IntervalIndex.from_arrays(few, few + 1)] * 2), 6 * 800 // 4),
    ):
        tree, buffers = sent(value)
        decoder = _values.Decoder([memoryview(buffer) for buffer in buffers])
        before = decoder.work
        decoder.decode(tree)
        assert least < before - decoder.work < 2 * least + 1600
    # The sender knows the limit, and refuses values that the reader would reject.
    for large in (
        pandas.Series(pandas.arrays.SparseArray(numpy.ones(17_000_000, "i1"), fill_value=0)),
        pandas.MultiIndex.from_arrays([numpy.arange(7_000_000)] * 2),
    ):
        assert type(crossed((large,))) is sandfork.Opaque


@pytest.mark.usefixtures("alone")
def test_table_rejects_a_forged_row_count() -> None:
    many = {"type": "range-index", "start": 0, "stop": 2**62, "step": 1, "name": None}
    none = {**many, "stop": 0}
    for start in (0, 1):
        index = {**many, "start": start}
        frame = {"type": "dataframe", "columns": none, "index": index, "data": []}
        empty = {"dtype": "object", "values": []}
        labels = {"type": "series", "of": "pandas-index", "name": None, "index": index, "data": empty}
        for tree in (frame, labels):
            with pytest.raises(ValueError, match="without columns has"):
                read(tree, [])


@pytest.mark.usefixtures("alone")
def test_a_table_keeps_columns_of_one_name() -> None:
    found = read(*_SENT["twice"])
    assert found.columns == ("a", "a_3", "a_2", "a_4")
    assert list(found) == [{"a": 1, "a_3": 2, "a_2": 3, "a_4": 4}]
    assert found["a_3"] == [2]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", ["polars", "arrow"])
def test_a_table_without_its_package_has_python_s_values(name: str) -> None:
    found = read(*_SENT[name])
    assert isinstance(found, Table)
    package = {"polars": "polars", "arrow": "pyarrow"}[name]
    assert f"{package} is not installed in the caller's Python" in repr(found)
    assert found["date"] == [datetime.date(2020, 1, 1), None, datetime.date(1, 1, 1)]
    assert found["category"] == ["a", "b", None]
    assert found["list"][1:] == [None, {"polars": [], "arrow": [2, 3]}[name]]
    assert found["text"][:2] == ["x", None]
    assert found["decimal"] == [ONE, None, TWO]
    assert found["bool"] == [True, None, False]
    if name == "polars":
        assert found["time"] == [datetime.time(1, 2, 3), None, datetime.time(0)]
        assert found["span"][0] == datetime.timedelta(1)
        assert found["moment"][0] == NOW


def column(dtype: str, kind: str, data: bytes, **more: Any) -> tuple[Any, list[bytes]]:
    """A series of one column, in the notation of the wire."""
    count = len(data) // int(kind[2])
    values = {"type": "ndarray", "dtype": kind, "shape": [count], "buffer": 0}
    index = {"type": "range-index", "start": 0, "stop": count, "step": 1, "name": None}
    tree = {"type": "series", "of": "polars", "name": "x", "index": index}
    return {**tree, "data": {"dtype": dtype, "values": values, **more}}, [data]


def refused(tree: Any, buffers: list[bytes]) -> str:
    said = ""
    for of in ("polars", "arrow"):
        with pytest.raises(ValueError, match=".") as raised:
            read({**tree, "of": of}, buffers)
        said = str(raised.value)
    return said


def lengths(*each: int) -> bytes:
    return b"".join(length.to_bytes(4, "little", signed=True) for length in each)


def texts(data: bytes, *each: int) -> tuple[Any, list[bytes]]:
    tree, buffers = column("string", "<i4", lengths(*each))
    pair = [tree["data"]["values"], {"type": "bytes", "buffer": 1}]
    tree["data"]["values"] = {"type": "tuple", "items": pair}
    return tree, [*buffers, data]


@pytest.mark.usefixtures("numpy_or_not")
def test_hostile_columns_are_rejected() -> None:
    # polars raises a `BaseException` when it formats a date, a time or a datetime outside the calendar.
    year = "a timestamp outside of the years 1 to 9999"
    assert year in refused(*column("date", "<i4", b"\xff\xff\xff\x7f"))
    assert year in refused(*column("time[ns]", "<i8", b"\xff" * 7 + b"\x7f"))
    assert year in refused(*column("time[ns]", "<i8", b"\xff" * 8))
    assert year in refused(*column("datetime[us]", "<M8[us]", b"\xff" * 7 + b"\x7f"))
    assert year in refused(*column("duration[us]", "<m8[us]", bytes(7) + b"\x80"))
    assert "booleans" in refused(*column("bool", "|b1", b"\2"))
    # Strings with false lengths, or with bytes that are not UTF-8.
    for bad in (texts(b"abc", 1, 1), texts(b"abc", 2**31 - 1), texts(b"abc", 5, -2), texts(b"", -3)):
        assert "do not match its lengths" in refused(*bad)
    assert "utf" in refused(*texts("é".encode(), 1, 1)).lower()
    # Codes outside of the categories.
    labels = {"dtype": "string", "values": texts(b"", 0)[0]["data"]["values"]}
    for code in (1, -2):
        tree, buffers = column("category", "<i4", lengths(code), categories=labels)
        labels["values"]["items"][0]["buffer"], labels["values"]["items"][1]["buffer"] = 1, 2
        assert "codes" in refused(tree, [*buffers, lengths(0), b""])
    # Data of another type, a mask of another length, and another number of rows.
    assert "another type" in refused(*column("int64", "<i4", bytes(8)))
    mask = {"type": "ndarray", "dtype": "|b1", "shape": [2], "buffer": 1}
    tree, buffers = column("int64", "<i8", bytes(8), mask=mask)
    assert "mask" in refused(tree, [*buffers, bytes(2)])
    tree, buffers = column("int64", "<i8", bytes(8))
    tree["index"]["stop"] = 2**62
    assert "differ in length" in refused(tree, buffers)


def nested(schema: Any, *each: Any) -> tuple[Any, list[bytes]]:
    index = {"type": "range-index", "start": 0, "stop": len(each), "step": 1, "name": None}
    data = {"dtype": "nested", "schema": schema, "values": list(each)}
    return {"type": "series", "of": "polars", "name": "x", "index": index, "data": data}, []


def test_hostile_nested_columns_are_rejected() -> None:
    deep: Any = "int64"
    for _ in range(20):
        deep = ["list", deep]
    for schema in (deep, ["list"], ["map", "int64"], ["struct", [["a", "int64"], ["a", "int64"]]], 5, []):
        assert "unknown type" in refused(*nested(schema, None))
    # Null arrays of fixed width take as much memory as others.
    wide = ["array", 1 << 20, ["array", 1 << 10, "int64"]]
    assert "too much work" in refused(*nested(wide, None))
    long = {"type": "decimal", "text": "1E+99999999"}
    for schema, value in (
        (["list", "int64"], ["x"]),
        (["list", "decimal[10, 2]"], [long]),
        (["list", "bool"], 1),
    ):
        assert "not of the column's type" in refused(*nested(schema, value))


def mutated(chance: random.Random, tree: Any) -> Any:
    if chance.random() < 0.15 or not isinstance(tree, (list, dict)) or not tree:
        plain = [None, -1, 0, 1, 3, 2**63, 1.5, "x", "|b1", "<i8", "<f2", "category", "string", [], {}]
        return chance.choice(
            [*plain, "time[ns]", "datetime[s, UTC]", "polars", "arrow", "pandas", "nested", "sparse"]
        )
    name = chance.randrange(len(tree)) if isinstance(tree, list) else chance.choice(list(tree))
    tree[name] = mutated(chance, tree[name])
    return tree


# pandas and numpy warn about large numbers.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_mutated_frames_raise_a_value_error_or_can_be_shown() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    trees = [sent(value) for value in (polars_frame(), arrow_table(), polars_frame()[1:])]
    trees += [sent(value) for made in (binned, sparse, of_arrow, scalars) for value in made()]
    for round_ in range(1500):
        tree, buffers = chance.choice(trees)
        tree = json.loads(json.dumps(tree))
        buffers = [bytearray(buffer) for buffer in buffers]
        for _ in range(chance.choice((0, 1, 3))):
            buffer = chance.choice([*buffers, b""])
            if buffer:
                buffer[chance.randrange(len(buffer))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        for _ in range(chance.choice((0, 1, 1, 2))):
            tree = mutated(chance, tree)
        try:
            found = read(tree, buffers)
        except ValueError:
            continue
        try:
            repr(found)
            if isinstance(found, polars.DataFrame):
                found.to_dicts()
            elif isinstance(found, (pyarrow.Table, pyarrow.Array)):
                found.validate(full=True)
        except BaseException as error:
            # pandas cannot format all that it can create, such as columns whose categories overlap.
            if type(found).__module__.startswith("pandas") and isinstance(error, Exception):
                continue
            raise AssertionError(f"seed {seed}, round {round_}: {error!r}") from error

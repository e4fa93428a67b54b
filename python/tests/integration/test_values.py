"""Arrays and frames between host and guest."""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import uuid
from collections.abc import Iterator

import pytest

import sandfork
from sandfork import Sandbox

numpy = pytest.importorskip("numpy")
pandas = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def sbx(real: None, packages: sandfork.Policy) -> Iterator[Sandbox]:
    with Sandbox(packages, timeout=120, tools={"same": lambda x: x}) as sandbox:
        assert sandbox.run("import numpy, pandas").ok
        yield sandbox


VALUES = [
    datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc),
    datetime.timedelta(days=-1, microseconds=5),
    decimal.Decimal("1.10"),
    fractions.Fraction(1, 3),
    pathlib.PurePosixPath("/a/b"),
    uuid.UUID(int=5),
    complex(1, -0.0),
    range(3, 10, 2),
    list(range(1000)),
    [0.5] * 300,
    frozenset({(1, "a"), None}),
    {"nested": [{"deep": ({1},)}]},
    "x" * 100_000,
    bytearray(b"abc"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_standard_library_values_round_trip(sbx: Sandbox, value: object) -> None:
    sbx.set(value=value)
    for came in (sbx.get("value"), sbx.run("same(value)").value):
        assert came == value
        assert type(came) is type(value)


@pytest.mark.parametrize("dtype", ["f8", "i4", "u1", "?", "c16", "U5", "S3", "M8[ns]", ">f4"])
def test_arrays(sbx: Sandbox, dtype: str) -> None:
    array = numpy.arange(12).astype(dtype).reshape(3, 4)
    sbx.set(array=array)
    for came in (sbx.get("array"), sbx.run("same(array)").value, sbx.run("array.copy()").value):
        assert came.dtype == array.dtype
        numpy.testing.assert_array_equal(came, array)


def test_object_arrays_are_not_transferred(sbx: Sandbox) -> None:
    value = sbx.run("numpy.array([object()])").value
    assert isinstance(value, sandfork.Opaque)


def test_frames(sbx: Sandbox) -> None:
    frame = pandas.DataFrame(
        {
            "number": [1.5, 2.5],
            "text": ["a", None],
            "when": pandas.to_datetime(["2024-01-01", "2024-01-02"]),
            "kind": pandas.Categorical(["x", "y"]),
        },
        index=pandas.Index([10, 20], name="key"),
    )
    sbx.set(frame=frame)
    came = sbx.run("frame").value
    pandas.testing.assert_frame_equal(came, frame)
    (main,) = sbx.run("frame").results
    assert main.html is not None
    assert "<table" in main.html
    assert main.text == str(frame)
    assert sbx.run("frame.number.sum()").value == 4.0


def test_a_hundred_megabytes_are_transferred_both_ways(sbx: Sandbox) -> None:
    array = numpy.random.default_rng(1).random(12_500_000)
    sbx.set(large=array)
    assert sbx.run("float(large.sum())").value == pytest.approx(float(array.sum()))
    came = sbx.get("large")
    assert came.nbytes == 100_000_000
    numpy.testing.assert_array_equal(came, array)
    # The value is writable, and a write does not change the guest's.
    came[0] = -1.0
    assert sbx.run("float(large[0])").value == array[0]
    sbx.run("del large")


def test_value_above_the_memory_limit_is_rejected() -> None:
    with Sandbox(sandfork.Policy(limits={"memory": "64MiB"})) as small:
        with pytest.raises(sandfork.ValueTooLarge, match=f"has room for {64 << 20}"):
            small.set(huge=numpy.zeros(9 << 20))
        assert small.run("1").value == 1

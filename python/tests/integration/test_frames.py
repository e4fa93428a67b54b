"""Frames of polars and tables of Arrow between a caller and a guest of the same interpreter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import sandfork
from sandfork import Sandbox

from ..test_frames import arrow_table, polars_frame

polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def sbx(real: None) -> Iterator[Sandbox]:
    limits = {"memory": "2GiB", "cpu": "5m"}
    policy = sandfork.Policy(python={"interpreter": sys.executable}, limits=limits)
    with Sandbox(policy, timeout=600, tools={"same": lambda x: x}) as sandbox:
        assert sandbox.run("import polars, pyarrow").ok
        yield sandbox


@pytest.mark.parametrize("make", [polars_frame, arrow_table])
def test_frames_are_transferred_in_both_directions(sbx: Sandbox, make: Any) -> None:
    frame = make()
    sbx.set(frame=frame)
    for found in (sbx.get("frame"), sbx.run("same(frame)").value, sbx.run("frame").value):
        assert type(found) is type(frame)
        assert found.schema == frame.schema
        assert str(found) == str(frame)


def test_frame_of_millions_of_rows_is_transferred(sbx: Sandbox) -> None:
    made = "polars.DataFrame({'n': range(3_000_000), 's': ['text'] * 3_000_000})"
    found = sbx.run(made).value
    assert isinstance(found, polars.DataFrame)
    assert (found.height, found["n"].sum(), found["s"].n_unique()) == (3_000_000, 4499998500000, 1)
    sbx.set(back=found)
    assert sbx.run("back.equals(" + made + ")").value is True


def test_a_guest_without_the_package_gets_a_table(real: None) -> None:
    frame = polars_frame()
    hidden = "import sys; sys.modules['polars'] = None"
    with Sandbox() as plain:
        plain.run(hidden)
        plain.set(frame=frame)
        assert plain.run("frame['int']").value == [1, None, 3]
        assert plain.run("[row['text'] for row in frame][0]").value == "x"
        with_note = plain.run("frame.group_by('text')").error
        assert with_note is not None
        assert "no attribute 'group_by' (polars is not installed in the sandbox" in with_note.value
        shown = plain.run("frame")
        assert "polars is not installed in the sandbox" in shown.text
        assert "<table" in shown.results[0].html

"""The wheel is built once, by `cargo xtask test`, which says where it is."""

from __future__ import annotations

import os
import pathlib

import pytest

collect_ignore = [] if "SANDFORK_TEST_WHEEL" in os.environ else ["test_wheel.py"]


@pytest.fixture(scope="session")
def wheel() -> pathlib.Path:
    return pathlib.Path(os.environ["SANDFORK_TEST_WHEEL"])

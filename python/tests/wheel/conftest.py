"""Fixtures for the wheel. `cargo xtask test` builds it once and passes its path."""

from __future__ import annotations

import os
import pathlib

import pytest

collect_ignore = [] if "SANDFORK_TEST_WHEEL" in os.environ else ["test_wheel.py"]


@pytest.fixture(scope="session")
def wheel() -> pathlib.Path:
    return pathlib.Path(os.environ["SANDFORK_TEST_WHEEL"])

"""Common fixtures of the tests of the smolagents executor."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sandfork.smolagents import NativeExecutor


class Unavailable(pytest.Module):
    """A test module that cannot be imported: its tests are skipped and counted."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip("smolagents is not installed; it needs Python 3.10", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if importlib.util.find_spec("smolagents") is not None:
        return None
    return Unavailable.from_parent(parent, path=module_path)


@pytest.fixture
def executor() -> Iterator[NativeExecutor]:
    from sandfork.smolagents import NativeExecutor

    made = NativeExecutor([])
    yield made
    made.cleanup()

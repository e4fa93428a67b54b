"""Fixtures, and the marker for the frameworks' own suites."""

from __future__ import annotations

import pytest

from ..integration.conftest import doctor, real

__all__ = ["doctor", "real"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        module = getattr(getattr(item, "function", None), "__module__", "")
        if module.startswith(("inspect_ai.", "langchain_tests.")):
            item.add_marker(pytest.mark.foreign)

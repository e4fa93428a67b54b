"""`tests/utils/markers.py` of smolagents, which its source distribution leaves out.

There the marks skip what needs a service. Here what they mark runs in a sandbox, on this machine.
"""

from __future__ import annotations

import importlib.util

import pytest


def require_run_all(test):  # type: ignore[no-untyped-def]
    return test


require_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
require_soundfile = pytest.mark.skipif(
    importlib.util.find_spec("soundfile") is None, reason="soundfile is not installed"
)

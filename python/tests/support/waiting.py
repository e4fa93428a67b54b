"""Waits with a time limit."""

from __future__ import annotations

import time
from typing import Callable

SECONDS = 60


def eventually(condition: Callable[[], object], what: str = "it does not come true") -> None:
    """Polls until the condition holds, and fails with `what` if that takes too long."""
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.01)

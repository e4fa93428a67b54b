"""Waits that end."""

from __future__ import annotations

import time
from typing import Callable

SECONDS = 60


def eventually(condition: Callable[[], object], what: str = "it does not come true") -> None:
    """Asks until the condition holds, and fails with `what` if that takes long."""
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.01)

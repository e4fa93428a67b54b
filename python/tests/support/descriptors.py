"""Open files of this process."""

from __future__ import annotations

import gc
import os
import time

from sandfork import _supervisor


def opened() -> set[str]:
    """The open descriptors and their targets, except the prepared connection for the next session."""
    shared = _supervisor._shared
    standing_by = {str(spare.fileno()) for spare in shared._spare} if shared is not None else set()
    assert len(standing_by) <= 1
    found = set()
    for name in os.listdir("/proc/self/fd"):
        if name in standing_by:
            continue
        try:
            found.add(f"{name} -> {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:
            # The descriptor of the listing, or one that another thread has just closed.
            continue
    return found


def assert_closed_since(before: set[str]) -> None:
    """Checks that no new descriptor stays open once threads have closed theirs."""
    deadline = time.monotonic() + 60
    while True:
        gc.collect()
        left = opened() - before
        if not left or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    assert not left

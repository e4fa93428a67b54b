"""What can only be seen when two threads meet at one moment."""

from __future__ import annotations

import threading
from typing import Callable

import pytest

from sandfork._link import Link


def interrupt_behind_cells(monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]) -> None:
    """Another thread interrupts each cell when the supervisor may have all of it, and whoever wrote it
    does not go on yet."""
    write = Link.write

    def write_and_interrupt(link: Link, data: memoryview, descriptor: int | None) -> int:
        count = write(link, data, descriptor)
        if b'"kind":"cell"' in bytes(data):
            interrupts = threading.Thread(target=interrupt)
            interrupts.start()
            interrupts.join()
        return count

    monkeypatch.setattr(Link, "write", write_and_interrupt)

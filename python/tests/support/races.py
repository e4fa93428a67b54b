"""Provokes races between two threads, and signals at a given point."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType, ModuleType
from typing import Any, Callable

import pytest

from sandfork._link import Link


def interrupt_behind_cells(monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]) -> None:
    """Another thread interrupts each cell when the supervisor may have received all of it and its writer
    has not continued yet."""
    write = Link.write

    def write_and_interrupt(link: Link, data: memoryview, descriptor: int | None) -> int:
        count = write(link, data, descriptor)
        if b'"kind":"cell"' in bytes(data):
            interrupts = threading.Thread(target=interrupt)
            interrupts.start()
            interrupts.join()
        return count

    monkeypatch.setattr(Link, "write", write_and_interrupt)


Place = tuple[CodeType, int]
"""A bytecode."""

MAX_TIMES = 2
"""The number of attempts at one place, for example for a frame's head and for its content."""


class Alarm(Exception):
    """The exception that a signal handler raises."""


def _raise() -> None:
    raise Alarm


class AlarmClock:
    """Does what a signal handler may do, such as raising `Alarm`, where a handler may run: before a bytecode
    of some modules, or before a line of others."""

    def __init__(self, bytecodes: Iterable[ModuleType], lines: Iterable[ModuleType]) -> None:
        self._events = {module.__file__: "opcode" for module in bytecodes}
        self._events.update((module.__file__, "line") for module in lines)

    def places(self, act: Callable[[], object]) -> Iterator[tuple[Place, int]]:
        """Each place that the action passes, and each of the first times that it passes it."""
        passed: Counter[Place] = Counter()
        self._watch(act, lambda place: passed.update((place,)))
        for place, times in passed.items():
            for time in range(1, min(times, MAX_TIMES) + 1):
                yield place, time

    def ring(
        self, place: Place, time: int, act: Callable[[], object], handler: Callable[[], object] = _raise
    ) -> None:
        """Runs an action, and calls the handler when the action passes a place for the given time."""
        left = time

        def come_by(passed: Place) -> None:
            nonlocal left
            left -= passed == place
            if left == 0 and passed == place:
                handler()

        with contextlib.suppress(Alarm):
            self._watch(act, come_by)

    def _watch(self, act: Callable[[], object], come_by: Callable[[Place], object]) -> None:
        def trace(frame: FrameType, event: str, _: object) -> Any:
            wanted = self._events.get(frame.f_code.co_filename)
            if wanted is None:
                return None
            frame.f_trace_opcodes = wanted == "opcode"
            if event == wanted:
                come_by((frame.f_code, frame.f_lasti))
            return trace

        before = sys.gettrace()
        # A collection here would finalize what an earlier act left, at a place that is not this act's.
        gc.disable()
        sys.settrace(trace)
        try:
            act()
        finally:
            sys.settrace(before)
            gc.enable()

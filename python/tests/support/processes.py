"""The processes of this machine."""

from __future__ import annotations

import os
import time
from typing import NamedTuple


class Process(NamedTuple):
    """A process. Its start time distinguishes it from a later process with the same id."""

    number: int
    started: str


def _stat(number: int) -> list[str] | None:
    """The fields of /proc/PID/stat (proc(5)) from the state on."""
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def of(number: int) -> Process:
    fields = _stat(number)
    assert fields is not None
    return Process(number, fields[19])


def descendants(number: int) -> set[Process]:
    """All descendants of a process, except zombies."""
    parents: dict[int, tuple[int, Process]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = _stat(int(name))
        if fields is not None and fields[0] not in "ZX":
            parents[int(name)] = (int(fields[1]), Process(int(name), fields[19]))
    found: set[Process] = set()
    around = {number}
    while around:
        inner = {child for child, (parent, _) in parents.items() if parent in around}
        found |= {parents[child][1] for child in inner}
        around = inner
    return found


def threads(process: Process) -> int:
    """The number of its threads; 0 if it has ended."""
    fields = _stat(process.number)
    return int(fields[17]) if fields is not None and fields[19] == process.started else 0


def is_alive(process: Process) -> bool:
    fields = _stat(process.number)
    return fields is not None and fields[19] == process.started and fields[0] not in "ZX"


def assert_gone(processes: set[Process]) -> None:
    """Waits until all of them have ended, and fails if that takes too long."""
    deadline = time.monotonic() + 60
    left = processes
    while left and time.monotonic() < deadline:
        left = {process for process in left if is_alive(process)}
        time.sleep(0.01)
    assert not left, [open(f"/proc/{process.number}/cmdline").read() for process in left]  # noqa: SIM115

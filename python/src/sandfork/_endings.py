"""Describes in one sentence how a cell ended, if the guest reported no exception."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

_NOUNS = {
    "limits.wall": "on the clock",
    "limits.cpu": "of processor time",
    "limits.memory": "of memory",
    "limits.pids": "processes and threads",
    "limits.output": "of output",
    "limits.open_files": "open files in one process",
    "limits.file_size": "for one file",
    "limits.cores": "processors",
    "filesystem.work_size": "in /work",
    "filesystem.work_inodes": "files in /work",
    "filesystem.tmp_size": "in each of /tmp and /dev/shm",
    "filesystem.tmp_inodes": "files in each of /tmp and /dev/shm",
    "network.connections": "connections at once",
    "network.bytes": "of traffic",
    "session.snapshots": "snapshots at once",
    "session.snapshot_bytes": "of snapshots",
}
_TIMES = ("limits.wall", "limits.cpu")
_SIZES = ("memory", "output", "file_size", "work_size", "tmp_size")


def class_name(status: str) -> str:
    """Returns the error name of a status: `memory-limit` becomes `MemoryLimit`."""
    return "".join(word.capitalize() for word in status.split("-"))


def sentence(outcome: Mapping[str, Any], limits: Mapping[str, float | str], session: str) -> str:
    """Returns the sentence for an outcome under these limits. A limit that is a string is in a policy's
    notation. `session` is `live` or `ended`, the session's state after the cell."""
    status = outcome["status"]
    hit = outcome.get("limit")
    if hit is not None:
        key = str(hit.get("name", ""))
        return f"the cell reached its limit of {_amount(key, limits.get(key))} {_NOUNS.get(key, '')} ({key})"
    if status == "denied":
        return "the guest was killed by SIGSYS, which seccomp sends for a system call that the policy refuses"
    if status == "signal":
        return f"the guest was ended by {_signal(int(outcome.get('exit_code', 128)) - 128)}"
    if status == "interrupted":
        if session == "ended":
            return "the cell was interrupted, and its session ended: session.age was over, or it did not stop"
        return "the cell was interrupted"
    return f"the cell ended with {status}"


def _amount(key: str, amount: float | str | None) -> str:
    if amount is None:
        return "what the policy allows"
    if isinstance(amount, str):
        return amount
    if key in _TIMES:
        return f"{amount:g} s"
    if not key.endswith(_SIZES):
        return f"{amount:g}"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:g} {unit}"


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"

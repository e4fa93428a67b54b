"""The supervisor's reports on a session and on a cell."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Usage:
    """The resources that a cell used, as measured by the kernel and the supervisor. A field is `None` if this
    host cannot measure it, or if a cell without a cgroup was too short for it. In a session, memory and
    processes are counted for the whole session."""

    wall_ms: float = 0.0
    """Wall-clock time in milliseconds."""
    cpu_ms: float = 0.0
    """Processor time of all processes, in milliseconds."""
    peak_memory_bytes: int | None = None
    """Peak memory of all processes together, in bytes."""
    peak_pids: int | None = None
    """Peak number of processes and threads."""
    written_bytes: int | None = None
    """Size of the session's files in bytes."""
    output_bytes: int = 0
    """Bytes read from stdout and stderr."""
    connections: int = 0
    """Number of connections to other hosts, including refused ones."""
    sent_bytes: int = 0
    """Bytes sent to other hosts."""
    received_bytes: int = 0
    """Bytes received from other hosts."""
    phases: Mapping[str, Any] | None = None
    """Durations of the phases of a `map` task in whole microseconds, as in `usage.phases` of `--json`;
    `None` for cells of sessions."""


@dataclass(frozen=True)
class Limit:
    """The limit that ended a cell."""

    name: str
    """The limit's key in the policy, such as `limits.wall`."""
    by: str
    """The mechanism that enforced it: `cgroup`, `rlimit`, `interpreter`, `tmpfs`, `watchdog`, `deadline` or
    `supervisor`."""


@dataclass(frozen=True)
class Enforced:
    """The level and layers that were verified before guest code ran, not those that were configured."""

    level: str
    """The level: `full`, `standard` or `landlock`."""
    layers: tuple[str, ...]
    """The verified layers, outermost first."""


@dataclass(frozen=True)
class Denial:
    """A refused operation, as far as it could be observed, and the setting that would allow it. Identical
    refusals are counted in one entry."""

    operation: str = ""
    """The operation: `fork`, `memory`, `limit`, `connect` to a host, `socket`, `system call`, or one that an
    exception of the guest reports: `import`, `access` to a path, `run` a program."""
    target: str | None = None
    """The path, module, amount of a limit or name of a system call, or `None`."""
    errno: int | None = None
    """The errno that the guest received, or `None`."""
    reported_by: str = "guest"
    """`kernel`, `supervisor` or `guest`. A guest's report proves nothing: before you allow the operation,
    make sure that the code needs it."""
    layer: str | None = None
    """The layer that refused it, or `None` if no layer did."""
    file: str | None = None
    """The guest's source file that tried the operation, as reported by the guest."""
    line: int | None = None
    key: str | None = None
    """The policy key that allows the operation; `None` if no key does."""
    set: str | None = None
    """The argument of `--set` that allows the operation, such as `filesystem.read=/srv/data`."""
    on_host: bool | None = None
    """Whether a hidden path exists on the host; `None` unless `ask_host` was set."""
    reason: str | None = None
    """The reason code of a refused connection (`docs/network.md` in the repository), or `None`."""
    count: int = 1

    def __str__(self) -> str:
        """One line with the operation and the setting that allows it. Control characters of the target are
        escaped."""
        what = self.operation
        if self.target is not None:
            what += " " + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in self.target)
        if self.layer is not None:
            what += f" by {self.layer}"
        if self.reason is not None:
            what += f": {self.reason}"
        if self.set is not None:
            return f"{what} (`{self.set}` in the policy allows it)"
        if self.key is not None:
            allowed = "allows it"
            if self.key == "syscalls.deny":
                allowed = "lists it" if self.operation == "system call" else "lists `execve`"
            return f"{what} (`{self.key}` of the policy {allowed})"
        return what


@dataclass(frozen=True)
class Connection:
    """A connection of the guest to another host, or one that was refused. The guest chose the names."""

    host: str
    port: int | None
    """The port, or `None` if the guest only resolved the name."""
    address: str | None
    """The address of the host to which the connection was made."""
    request: str | None
    """The method and path of a refused request."""
    sent: int
    """Bytes sent in this cell."""
    received: int
    """Bytes received in this cell."""
    verdict: str
    """`allowed`, `refused` by the policy, or `failed`."""
    reason: str | None
    """The reason code of a refusal or failure (`docs/network.md` in the repository)."""
    open: bool
    """Whether the connection was still open at the end of the cell."""
    count: int = 1
    """The number of identical refusals or failures."""


@dataclass(frozen=True)
class PolicyIdentity:
    """The policy in force."""

    name: str
    sha256: str
    """Hash of the effective policy. Equal hashes mean equal effects."""


@dataclass(frozen=True)
class PythonInfo:
    """The guest's interpreter."""

    executable: str
    version: str
    environment: str
    """`sys.prefix`: the environment whose packages can be imported."""


@dataclass(frozen=True)
class SessionInfo:
    """The enforced layers, policy, interpreter, limits and usage of a session."""

    enforced: Enforced
    policy: PolicyIdentity
    python: PythonInfo
    limits: Mapping[str, float]
    """The limits by their keys in the policy, in seconds, bytes or counts."""
    session: int = 0
    """The session's number in this process, as in log records."""
    cells: int = 0
    """The number of cells that have ended, over restarts."""
    usage: Usage | None = None
    """The resource usage of these cells: the total of times and output, the peaks of memory and processes,
    and the size of the files at the end of the last cell."""
    paused: bool = False
    """Whether the session is paused (`session.pause_after`, `pause`). The next use restores it."""
    forked_from: int | None = None
    """The number of the session from which it was forked, if it is a fork."""
    can_install: bool = False
    """Whether the policy allows `install` to add packages."""


@functools.cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _known(kind: Any, report: Mapping[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in _names(kind) if name in report}


def usage(report: Mapping[str, Any]) -> Usage:
    return Usage(**_known(Usage, report))


_SUMS = ("wall_ms", "cpu_ms", "output_bytes", "connections", "sent_bytes", "received_bytes")
_PEAKS = ("peak_memory_bytes", "peak_pids")


class Total:
    """The accumulated usage of many cells. `add` is called for each cell, `usage` rarely."""

    def __init__(self) -> None:
        self._total = dict(vars(Usage()))

    def add(self, report: Mapping[str, Any]) -> None:
        """Adds the usage of one cell."""
        total = self._total
        for name in _SUMS:
            total[name] += report.get(name, 0)
        for name in _PEAKS:
            peak = report.get(name)
            if peak is not None and (total[name] is None or peak > total[name]):
                total[name] = peak
        total["written_bytes"] = report.get("written_bytes")

    def usage(self) -> Usage:
        return Usage(**self._total)


def limit(report: Mapping[str, Any] | None) -> Limit | None:
    return None if report is None else Limit(str(report.get("name", "")), str(report.get("by", "")))


def enforced(report: Mapping[str, Any]) -> Enforced:
    return Enforced(str(report.get("level", "")), tuple(map(str, report.get("layers", ()))))


def denials(report: Any) -> tuple[Denial, ...]:
    return tuple(Denial(**_known(Denial, denial)) for denial in report)


def connections(report: Any) -> tuple[Connection, ...]:
    return tuple(Connection(**_known(Connection, connection)) for connection in report)


def identity(report: Mapping[str, Any]) -> PolicyIdentity:
    return PolicyIdentity(str(report.get("name", "")), str(report.get("sha256", "")))


def session_info(report: Mapping[str, Any]) -> SessionInfo:
    python = report.get("python", {})
    return SessionInfo(
        enforced=enforced(report.get("enforced", {})),
        policy=identity(report.get("policy", {})),
        python=PythonInfo(*(str(python.get(k, "")) for k in ("executable", "version", "environment"))),
        limits=dict(report.get("limits", {})),
        can_install=report.get("can_install") is True,
    )

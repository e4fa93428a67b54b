"""What the supervisor tells of a session and of a cell, besides what the guest did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Usage:
    """What a cell used, by the kernel's counts and the supervisor's; `None` where this host has nothing
    that measures it. With sessions, memory and processes are those of the session."""

    wall_ms: float
    """Time on the clock, milliseconds."""
    cpu_ms: float
    """Processor time of all its processes, milliseconds."""
    peak_memory_bytes: int | None
    """Most memory of all processes together."""
    peak_pids: int | None
    """Most processes and threads at once."""
    written_bytes: int | None
    """What the session's files hold."""
    output_bytes: int
    """Taken from stdout and stderr."""
    phases: Mapping[str, Any] | None = None
    """Where the time of a task of `map` went, whole microseconds, as `usage.phases` of the command's
    `--json`; cells of sessions have none."""


@dataclass(frozen=True)
class Limit:
    """The limit that ended a cell."""

    name: str
    """Its key in the policy, such as `limits.wall`."""
    by: str
    """What held it: `cgroup`, `rlimit`, `tmpfs`, `watchdog`, `deadline` or `supervisor`."""


@dataclass(frozen=True)
class Enforced:
    """What was verified before guest code ran, not what was configured."""

    level: str
    """`full`, `standard` or `landlock`."""
    layers: tuple[str, ...]
    """From the outermost."""


@dataclass(frozen=True)
class Denial:
    """One operation that was refused, as far as it could be seen."""

    operation: str
    target: str | None
    """On what: a path."""
    errno: int | None
    """What the guest got; none where it was killed."""
    reported_by: str
    """`kernel` or `guest`, whose word proves nothing."""


@dataclass(frozen=True)
class PolicyIdentity:
    """Which policy was in force."""

    name: str
    sha256: str
    """Of the effective policy: equal hashes mean equal effects."""


@dataclass(frozen=True)
class PythonInfo:
    """The guest's interpreter."""

    executable: str
    version: str
    environment: str
    """`sys.prefix`: the environment whose packages can be imported."""


@dataclass(frozen=True)
class SessionInfo:
    """What a session stands on."""

    enforced: Enforced
    policy: PolicyIdentity
    python: PythonInfo
    limits: Mapping[str, float]
    """By their keys in the policy: seconds, bytes, counts."""


def usage(told: Mapping[str, Any]) -> Usage:
    return Usage(
        wall_ms=float(told.get("wall_ms") or 0.0),
        cpu_ms=float(told.get("cpu_ms") or 0.0),
        peak_memory_bytes=told.get("peak_memory_bytes"),
        peak_pids=told.get("peak_pids"),
        written_bytes=told.get("written_bytes"),
        output_bytes=int(told.get("output_bytes") or 0),
        phases=told.get("phases"),
    )


def limit(told: Mapping[str, Any] | None) -> Limit | None:
    return None if told is None else Limit(str(told.get("name", "")), str(told.get("by", "")))


def enforced(told: Mapping[str, Any]) -> Enforced:
    return Enforced(str(told.get("level", "")), tuple(map(str, told.get("layers", ()))))


def denials(told: Any) -> tuple[Denial, ...]:
    return tuple(
        Denial(
            operation=str(denial.get("operation", "")),
            target=denial.get("target"),
            errno=denial.get("errno"),
            reported_by=str(denial.get("reported_by", "guest")),
        )
        for denial in told
    )


def identity(told: Mapping[str, Any]) -> PolicyIdentity:
    return PolicyIdentity(str(told.get("name", "")), str(told.get("sha256", "")))


def session_info(told: Mapping[str, Any]) -> SessionInfo:
    python = told.get("python", {})
    return SessionInfo(
        enforced=enforced(told.get("enforced", {})),
        policy=identity(told.get("policy", {})),
        python=PythonInfo(*(str(python.get(k, "")) for k in ("executable", "version", "environment"))),
        limits=dict(told.get("limits", {})),
    )

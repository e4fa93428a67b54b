"""Runs untrusted Python in a sealed Linux sandbox.

    import sandfork

    print(sandfork.run("6 * 7").value)

    with sandfork.Sandbox(timeout=30) as sbx:
        sbx.run("x = 20")
        print(sbx.run("x + 1").text)

`Sandbox` is a session that keeps variables, imports and files between cells. `run` executes one program
in a fresh session. `map` executes many programs, each in a fresh session.
`Sandbox.run` and `run` return an `Execution`, which reports everything that guest code does. Every
exception that they raise is a `SandforkError`; `sandfork._exceptions` documents the exception tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._charts import display
from ._commands import Command, Commands, RunningCommand
from ._environment import Environment
from ._events import Stats, stats
from ._exceptions import (
    BinaryNotFound,
    FileError,
    FileNotFound,
    FileTooLarge,
    HostError,
    InterpreterError,
    NotEnforced,
    PolicyError,
    ProtocolError,
    RequestError,
    SandboxUnavailable,
    SandforkError,
    SessionBusy,
    SessionClosed,
    SessionEnded,
    SessionError,
    SessionForked,
    SupervisorDied,
    SupervisorError,
    SystemFailure,
    UndefinedVariable,
    ValueTooLarge,
)
from ._execution import Execution, ExecutionError, Logs
from ._files import FileEntry, Files
from ._map import Mapped, map
from ._policy import Policy
from ._programs import CommandResult
from ._reports import Connection, Denial, Enforced, Limit, PolicyIdentity, PythonInfo, SessionInfo, Usage
from ._result import Result
from ._run import run
from ._sandbox import Sandbox
from ._snapshots import Snapshot
from ._tasks import Progress, Task, TaskResult
from ._tools import Tool
from ._values import Opaque, Table
from ._watches import FileEvent, FileWatch

__version__ = "0.1.0"

__all__ = [
    "AsyncCommand",
    "AsyncCommands",
    "AsyncFileWatch",
    "AsyncFiles",
    "AsyncMapped",
    "AsyncSandbox",
    "AsyncSnapshot",
    "BinaryNotFound",
    "Command",
    "CommandResult",
    "Commands",
    "Connection",
    "Denial",
    "Enforced",
    "Environment",
    "Execution",
    "ExecutionError",
    "FileEntry",
    "FileError",
    "FileEvent",
    "FileNotFound",
    "FileTooLarge",
    "FileWatch",
    "Files",
    "HostError",
    "InterpreterError",
    "Limit",
    "Logs",
    "Mapped",
    "NotEnforced",
    "Opaque",
    "Policy",
    "PolicyError",
    "PolicyIdentity",
    "Progress",
    "ProtocolError",
    "PythonInfo",
    "RequestError",
    "Result",
    "RunningCommand",
    "Sandbox",
    "SandboxUnavailable",
    "SandforkError",
    "SessionBusy",
    "SessionClosed",
    "SessionEnded",
    "SessionError",
    "SessionForked",
    "SessionInfo",
    "Snapshot",
    "Stats",
    "SupervisorDied",
    "SupervisorError",
    "SystemFailure",
    "Table",
    "Task",
    "TaskResult",
    "Tool",
    "UndefinedVariable",
    "Usage",
    "ValueTooLarge",
    "async_map",
    "async_run",
    "display",
    "map",
    "run",
    "stats",
]

if _TYPE_CHECKING:
    from ._async import (
        AsyncCommand,
        AsyncCommands,
        AsyncFiles,
        AsyncFileWatch,
        AsyncMapped,
        AsyncSandbox,
        AsyncSnapshot,
        async_map,
        async_run,
    )

# asyncio takes longer to import than everything else, so it is imported on first use.
_LATER = tuple(_name for _name in __all__ if _name not in globals())


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _async

    found = getattr(_async, name)
    found.__module__ = __name__
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *_LATER]


# The private modules are an implementation detail: every public name belongs to `sandfork`.
for _name in __all__:
    if _name not in (*_LATER, "display"):
        globals()[_name].__module__ = __name__
del _name

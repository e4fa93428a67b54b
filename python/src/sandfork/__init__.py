"""Runs untrusted Python in a sealed Linux sandbox.

    import sandfork

    print(sandfork.run("6 * 7").value)

    with sandfork.Sandbox(timeout=30) as sbx:
        sbx.run("x = 20")
        print(sbx.run("x + 1").text)

`Sandbox` is a session that keeps variables, imports and files; `run` is a fresh one for one program, and
`map` one for each of many.
Whatever guest code does is told by the `Execution` that they return; what they raise is a
`SandforkError`, whose tree stands in the documentation of `sandfork._exceptions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

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
from ._files import AsyncFiles, FileEntry, Files
from ._map import Mapped, map
from ._policy import Policy
from ._reports import Denial, Enforced, Limit, PolicyIdentity, PythonInfo, SessionInfo, Usage
from ._result import Result
from ._sandbox import Sandbox, run
from ._task_results import Progress, TaskResult
from ._tasks import Task
from ._tools import Tool
from ._values import Opaque

__version__ = "0.1.0"

__all__ = [
    "AsyncFiles",
    "AsyncMapped",
    "AsyncSandbox",
    "BinaryNotFound",
    "Denial",
    "Enforced",
    "Execution",
    "ExecutionError",
    "FileEntry",
    "FileError",
    "FileNotFound",
    "FileTooLarge",
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
    "Sandbox",
    "SandboxUnavailable",
    "SandforkError",
    "SessionBusy",
    "SessionClosed",
    "SessionEnded",
    "SessionError",
    "SessionForked",
    "SessionInfo",
    "SupervisorDied",
    "SupervisorError",
    "SystemFailure",
    "Task",
    "TaskResult",
    "Tool",
    "UndefinedVariable",
    "Usage",
    "ValueTooLarge",
    "async_map",
    "async_run",
    "map",
    "run",
]

if _TYPE_CHECKING:
    from ._async_map import AsyncMapped, async_map
    from ._async_sandbox import AsyncSandbox, async_run

# asyncio takes longer to import than everything else: who does not use it does not wait for it.
_LATER = {
    "AsyncMapped": "_async_map",
    "AsyncSandbox": "_async_sandbox",
    "async_map": "_async_map",
    "async_run": "_async_sandbox",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    found.__module__ = __name__
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *_LATER]


# Where they are in this package is nobody's business but ours.
for _name in __all__:
    if _name not in _LATER:
        globals()[_name].__module__ = __name__
del _name

"""What the package raises.

Whatever guest code does, an endless loop and a segmentation fault included, is an `Execution`, never
an exception. These are for everything else:

    SandforkError
    ├── SandboxUnavailable       no sandbox could be provided; nothing of the guest ran
    │   ├── PolicyError          the policy says something that cannot be (a ValueError too)
    │   ├── HostError            this host cannot keep the policy
    │   ├── InterpreterError     the guest's Python is missing or unsuitable
    │   ├── NotEnforced          a layer did not hold when it was looked at from outside
    │   ├── SystemFailure        a system call failed; trying again may help
    │   └── BinaryNotFound       the `sandfork` program is nowhere
    ├── RequestError             a call cannot be done as it is (a ValueError too)
    │   ├── ValueTooLarge        code, variables or arguments are over a bound
    │   └── UndefinedVariable    `get` of a name that the session does not have (a NameError too)
    ├── SessionError             this session cannot serve the call
    │   ├── SessionBusy          another thread or task is using it
    │   ├── SessionEnded         its worker is gone, with variables, imports and files
    │   ├── SessionClosed        `close()` was called
    │   └── SessionForked        it belongs to the process that this one was forked from
    ├── FileError                a file request failed (an OSError too, with its errno)
    │   ├── FileNotFound         (a FileNotFoundError too)
    │   └── FileTooLarge         more bytes than `max_bytes`
    └── SupervisorError          the supervisor failed; the host's process is unharmed
        ├── SupervisorDied       it ended in the middle of a call
        └── ProtocolError        it said something that makes no sense
"""

from __future__ import annotations

import errno as _errno
import os


class SandforkError(Exception):
    """Everything that this package raises on purpose."""


class SandboxUnavailable(SandforkError):
    """No sandbox could be provided. Nothing of the guest ran; the message names the remedy."""


class PolicyError(SandboxUnavailable, ValueError):
    """The policy says something that cannot be, whatever the host: an unknown key, a value out of range."""


class HostError(SandboxUnavailable):
    """This host cannot keep the policy, or not at the level that it requires. `sandfork doctor` says
    which layer is missing, and what mends it."""


class InterpreterError(SandboxUnavailable):
    """The guest's interpreter is missing or unsuitable, or could not preload what the policy names."""


class NotEnforced(SandboxUnavailable):
    """A layer did not hold when the supervisor looked at the worker from outside."""


class SystemFailure(SandboxUnavailable):
    """A system call failed, or a process that was needed ended. Trying again may help."""


class BinaryNotFound(SandboxUnavailable):
    """The `sandfork` program is neither in the installed package nor on PATH, or cannot be run."""


class RequestError(SandforkError, ValueError):
    """A call cannot be done as it is: a bad argument. The session, if there is one, is as before."""


class ValueTooLarge(RequestError):
    """Code, variables or arguments are over a bound of the protocol or of the session's memory.
    Nothing was sent."""


class UndefinedVariable(RequestError, NameError):
    """`get` asked for a name that is not defined in the session."""


class SessionError(SandforkError):
    """This session cannot serve the call."""


class SessionBusy(SessionError):
    """Another thread or task is using the session. It serves one caller at a time; open one for each."""


class SessionEnded(SessionError):
    """The session's worker is gone, and with it variables, imports and files.

    `restart()` starts another one in its place; `on_death="restart"` does so by itself.
    """


class SessionClosed(SessionError):
    """The session was closed by `close()` or by the end of its `with` block."""


class SessionForked(SessionError):
    """The session belongs to the process that this one was forked from: open one here."""


class FileError(SandforkError, OSError):
    """A file request failed. `errno`, `strerror` and `filename` (in the session) are set."""

    def __init__(self, number: int, message: str, path: str) -> None:
        super().__init__(number, message, path)

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class FileNotFound(FileError, FileNotFoundError):
    """There is no such file in the session."""


class FileTooLarge(FileError):
    """The file is larger than `max_bytes` allows."""


class SupervisorError(SandforkError):
    """The supervisor failed. Its sessions are lost; the host's process is unharmed, and the next call
    that opens a session starts another supervisor."""


class SupervisorDied(SupervisorError):
    """The supervisor ended in the middle of a call, as by a SIGKILL."""


class ProtocolError(SupervisorError):
    """The supervisor said something that makes no sense, as one of another release may."""


# What the supervisor calls an error, and what that is here.
_BY_WORD: dict[str, type[SandforkError]] = {
    "policy": PolicyError,
    "host": HostError,
    "interpreter": InterpreterError,
    "not-enforced": NotEnforced,
    "request": RequestError,
    "system": SystemFailure,
    "busy": SessionBusy,
    "session-ended": SessionEnded,
    "protocol": ProtocolError,
}


def from_word(word: str, message: str) -> SandforkError:
    """The exception for an `error` message of the supervisor that is not about a file."""
    return _BY_WORD.get(word, SandforkError)(message)


def from_errno(number: int, message: str, path: str) -> FileError:
    """The exception for a file request that failed with this errno."""
    kind = FileNotFound if number == _errno.ENOENT else FileError
    return kind(number, message or os.strerror(number), path)

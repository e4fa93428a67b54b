"""The exceptions of the package.

Guest code never causes an exception in the caller. An `Execution` reports everything that it does, including
an endless loop and a segmentation fault. All other errors are exceptions:

    SandforkError
    ├── SandboxUnavailable       no sandbox could be provided; nothing of the guest ran
    │   ├── PolicyError          the policy is invalid (a ValueError too)
    │   ├── HostError            this host cannot enforce the policy
    │   ├── InterpreterError     the guest's Python is missing or unsuitable
    │   ├── NotEnforced          the supervisor found from outside that a layer was not enforced
    │   ├── SystemFailure        a system call failed; a retry may help
    │   └── BinaryNotFound       the `sandfork` program was not found
    ├── RequestError             an argument of a call is invalid (a ValueError too)
    │   ├── ValueTooLarge        code, variables or arguments are over a bound
    │   └── UndefinedVariable    `get` of a name that the session does not have (a NameError too)
    ├── SessionError             this session cannot serve the call
    │   ├── SessionBusy          another thread or task uses it
    │   ├── SessionEnded         its worker is gone, with variables, imports and files
    │   ├── SessionClosed        `close()` was called
    │   └── SessionForked        it belongs to the parent of this forked process
    ├── FileError                a file request failed (an OSError too, with its errno)
    │   ├── FileNotFound         (a FileNotFoundError too)
    │   └── FileTooLarge         more bytes than `max_bytes`
    └── SupervisorError          the supervisor failed; the host's process is unharmed
        ├── SupervisorDied       it ended during a call
        └── ProtocolError        it sent an invalid message
"""

from __future__ import annotations

import errno as _errno
import os
from collections.abc import Mapping
from typing import Any


class SandforkError(Exception):
    """Base class of the exceptions of this package."""


class SandboxUnavailable(SandforkError):
    """No sandbox could be provided, so no guest code ran. The message names the remedy."""


class PolicyError(SandboxUnavailable, ValueError):
    """The policy is invalid: it has an unknown key or a value out of range, or names a missing environment or
    file."""


class HostError(SandboxUnavailable):
    """This host cannot enforce the policy, or not at the level that it requires. `sandfork doctor` prints
    which layer is missing and how to fix it."""


class InterpreterError(SandboxUnavailable):
    """The guest's interpreter is missing or unsuitable, or could not preload a package of the policy."""


class NotEnforced(SandboxUnavailable):
    """The supervisor verified the worker from outside, and found that a layer was not enforced."""


class SystemFailure(SandboxUnavailable):
    """A system call failed, or a required process ended. A retry may help."""


class BinaryNotFound(SandboxUnavailable):
    """The `sandfork` program is neither in the installed package nor on PATH, or cannot be run."""


class RequestError(SandforkError, ValueError):
    """An argument of a call is invalid. The session, if there is one, is unchanged."""

    errno: int | None = None
    """The kernel's error number if a program could not be started."""


class ValueTooLarge(RequestError):
    """Code, variables or arguments exceed a bound of the protocol or the session's memory. Nothing was
    sent."""


class UndefinedVariable(RequestError, NameError):
    """The name passed to `get` is not defined in the session."""


class SessionError(SandforkError):
    """This session cannot serve the call."""


class SessionBusy(SessionError):
    """Another thread or task uses the session. A session serves one caller at a time: open one for each."""


class SessionEnded(SessionError):
    """The session's worker is gone, with its variables, imports and files.

    `restart()` starts a new worker. With `on_death="restart"` the next call does so automatically.
    """

    # The reason as a sentence fragment, if the supervisor reported it.
    _why: str | None = None


class SessionClosed(SessionError):
    """`close()` or the end of the `with` block closed the session."""


class SessionForked(SessionError):
    """The session belongs to the parent of this forked process: open a new session here."""


class FileError(SandforkError, OSError):
    """A file request failed. `errno`, `strerror` and `filename` (the path in the session) are set."""

    def __init__(self, number: int, message: str, path: str) -> None:
        super().__init__(number, message, path)

    # Whether the message is a sentence that names the path, as the supervisor's messages are.
    _is_sentence = False

    def __str__(self) -> str:
        return str(self.strerror) if self._is_sentence else f"{self.filename}: {self.strerror}"


class FileNotFound(FileError, FileNotFoundError):
    """The file does not exist in the session."""


class FileTooLarge(FileError):
    """The file is larger than `max_bytes` allows."""


class SupervisorError(SandforkError):
    """The supervisor failed, and its sessions are lost. The host's process is unharmed. The next call that
    opens a session starts a new supervisor."""


class SupervisorDied(SupervisorError):
    """The supervisor ended during a call, for example by SIGKILL."""


class ProtocolError(SupervisorError):
    """The supervisor sent an invalid message, for example because it is from another release."""


# The supervisor's error codes and their exceptions.
_BY_CODE: dict[str, type[SandforkError]] = {
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


def refused(header: Mapping[str, Any], path: str = "") -> SandforkError:
    """Returns the exception for a supervisor's `error` message. `path` is the path of a file request."""
    code, message = str(header.get("error")), str(header.get("message"))
    number, why = int(header.get("errno") or 0), header.get("why")
    if code == "file":
        failed = from_errno(number, message, path)
        failed._is_sentence = True
        return failed
    error = _BY_CODE.get(code, SandforkError)(message)
    if isinstance(error, RequestError) and number:
        error.errno = number
    if isinstance(error, SessionEnded) and why is not None:
        error._why = str(why)
    return error


def from_errno(number: int, message: str, path: str) -> FileError:
    """Returns the exception for a file request that failed with errno `number`."""
    kind = FileNotFound if number == _errno.ENOENT else FileError
    return kind(number, message or os.strerror(number), path)

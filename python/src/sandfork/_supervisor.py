"""The supervisor: one `sandfork serve` for each process, started on first use.

The supervisor ends when this process ends in any way, because its control socket is then closed. Neither
programs that this process runs nor its forked children hold that socket.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

from . import _binary
from ._exceptions import BinaryNotFound, SandforkError, SessionClosed, SupervisorDied, SystemFailure
from ._values import is_unicode

# Seconds for the supervisor to end: it only has to kill its workers.
_GRACE = 5.0
# A name for error messages of the supervisor. Such a directory does not exist; only root could create it.
_REMOVED = "/the current directory was removed"


class Supervisor:
    """A running supervisor."""

    def __init__(self) -> None:
        self.binary = _binary.find()
        self.has_answered = False
        """Whether it has sent anything to a session."""
        self.is_closed = False
        """Whether the supervisor was ended because this process exits."""
        # The environment that `[env] pass` reads. Each session is sent the differences to this process's
        # current environment.
        self.environ = dict(os.environ)
        self._encoded = _encoded_environ()
        # At most one spare connection, for which the supervisor has already started a thread: starting a
        # thread takes longer than opening a session.
        self._spare: deque[socket.socket] = deque()
        self.control, theirs = _pair(socket.SOCK_SEQPACKET)
        _supervisors.add(self)
        try:
            self.process = subprocess.Popen(
                [self.binary, "serve", "--control-fd", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self.environ,
                # Ctrl-C at the terminal must reach only this process, which then interrupts one cell.
                start_new_session=True,
            )
        except OSError as error:
            self.control.close()
            raise BinaryNotFound(f"{self.binary} could not be executed: {error.strerror}") from error
        finally:
            theirs.close()
        self.end = weakref.finalize(self, _end, self.process, self.control, self._spare)
        # `_end_at_exit` ends the supervisor instead, and records the reason for its sessions.
        self.end.atexit = False

    def connect(self) -> socket.socket:
        """Returns a connection for a new session. Raises `OSError` if the supervisor is gone."""
        while self._spare:
            spare = self._spare.pop()
            if _is_open(spare):
                return spare
            spare.close()
        return self._connected()

    def stand_by(self) -> None:
        """Prepares a connection for the next session. If that fails, the session will create its own."""
        if not self._spare:
            with contextlib.suppress(OSError):
                self._spare.append(self._connected())

    def _connected(self) -> socket.socket:
        ours, theirs = _pair(socket.SOCK_STREAM)
        rights = array.array("i", [theirs.fileno()])
        try:
            self.control.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def environ_differs(self) -> bool:
        """Whether this process's environment may differ from the supervisor's."""
        encoded = self._encoded
        return encoded is None or encoded != _encoded_environ()

    def forget(self) -> None:
        """In a forked process: releases the parent's supervisor without affecting it."""
        _close_all(self.control, self._spare)
        if hasattr(self, "end"):
            self.end.detach()
            # The supervisor is not a child of this process, so `Popen` must not wait for it.
            self.process.returncode = 0

    def describe_end(self) -> str | None:
        """Describes how the supervisor ended; `None` if it is running."""
        # The sockets close shortly before the process can be reaped.
        for _ in range(50):
            code = self.process.poll()
            if code is not None:
                how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
                return f"the supervisor (process {self.process.pid}) {how}"
            time.sleep(0.001)
        return None

    def never_served(self) -> SandforkError:
        """Returns the exception for a supervisor that ended before its first message. Unless it was killed,
        its program may be unsuitable."""
        end = f"{self.describe_end() or 'the supervisor ended'}, right after it started"
        if self.process.returncode == -signal.SIGKILL:
            return SupervisorDied(f"{end}: the next call starts another supervisor")
        return SystemFailure(f"{end}; its program is {self.binary} ({_binary.VARIABLE} names another)")


def _pair(kind: socket.SocketKind) -> tuple[socket.socket, socket.socket]:
    """Returns two connected blocking sockets, even in a process that has called
    `socket.setdefaulttimeout`."""
    family = socket.AF_UNIX
    ours, theirs = (
        end if end.fileno() > 2 else socket.socket(family, kind, fileno=above_streams(end.detach()))
        for end in socket.socketpair(family, kind)
    )
    for end in (ours, theirs):
        end.setblocking(True)
    # gevent and eventlet replace Python's sockets by ones with nonblocking descriptors.
    os.set_blocking(theirs.fileno(), True)
    return ours, theirs


def above_streams(descriptor: int) -> int:
    """Moves a descriptor to a number above the standard streams. If a standard stream is closed, a new
    descriptor gets its number: it would then receive printed output, and could not be passed to the
    supervisor."""
    if descriptor > 2:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


def _end(process: subprocess.Popen[bytes], control: socket.socket, spare: deque[socket.socket]) -> None:
    _close_all(control, spare)
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _close_all(control: socket.socket, spare: deque[socket.socket]) -> None:
    control.close()
    while spare:
        spare.pop().close()


def _is_open(connected: socket.socket) -> bool:
    """Whether the other end is open. The supervisor sends nothing before the first request."""
    try:
        # Not by MSG_DONTWAIT, because the sockets of gevent and eventlet wait in spite of it.
        connected.setblocking(False)
        connected.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        connected.setblocking(True)
        return True
    except OSError:
        pass
    return False


# Identifies this process. A forked process gets another object; calling getpid(2) would take longer.
this_process = object()
# Reentrant, because a signal handler or a finalizer may open and close sandboxes in the thread that starts
# a supervisor or requests a connection. Code that closes a sandbox never waits for this lock.
_lock = threading.RLock()
_shared: Supervisor | None = None
# The objects that a forked process must close, including a supervisor that is still starting.
_supervisors: weakref.WeakSet[Supervisor] = weakref.WeakSet()
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """One session's socket, and the supervisor at its other end."""

    __slots__ = ("__weakref__", "forked", "socket", "supervisor")

    def __init__(self, connected: socket.socket, supervisor: Supervisor | None) -> None:
        self.socket = connected
        self.supervisor = supervisor
        self.forked = False
        """Whether the connection belongs to the parent of this forked process."""
        _connections.add(self)

    def died(self) -> Exception:
        """Returns the exception for the end of the stream."""
        if self.supervisor is not None and self.supervisor.is_closed:
            return SessionClosed("the session is closed, because its process exits")
        if self.supervisor is not None and not self.supervisor.has_answered:
            return self.supervisor.never_served()
        end = self.supervisor.describe_end() if self.supervisor is not None else None
        reason = end or "the supervisor closed the session's connection"
        return SupervisorDied(
            f"{reason}: the session's variables, imports and files are lost; restart() or another session "
            "starts another supervisor"
        )

    def environ(self) -> dict[str, str | None]:
        """Returns the differences between this process's environment and the supervisor's; `None` marks a
        removed name."""
        if self.supervisor is None or not self.supervisor.environ_differs():
            return {}
        now, then = dict(os.environ), self.supervisor.environ
        changed: dict[str, str | None] = {k: v for k, v in now.items() if then.get(k) != v}
        changed.update((k, None) for k in then if k not in now)
        return {k: v for k, v in changed.items() if is_unicode(k) and is_unicode(v or "")}


def connect() -> Connection:
    """Connects to this process's supervisor, and starts it if it is not running."""
    global _shared
    with _lock:
        shared = _shared
        try:
            if shared is not None and shared.process.returncode is None:
                with contextlib.suppress(ConnectionError):
                    return Connection(shared.connect(), shared)
            if shared is not None:
                shared.end()
            _shared = shared = Supervisor()
            return Connection(shared.connect(), shared)
        except ConnectionError as error:
            if shared is None:
                # An exception of a signal handler.
                raise
            raise shared.never_served() from error
        except OSError as error:
            if error.errno is None:
                # An exception of a signal handler, such as `TimeoutError`.
                raise
            # For example too many open files. The supervisor and its sessions continue.
            raise SystemFailure(f"no connection to the supervisor: {error.strerror}") from error


def current_directory() -> str:
    """Returns the directory for relative paths. If the current directory was removed, this is not an error,
    but paths relative to it are not found."""
    try:
        return os.getcwd()
    except OSError:
        return _REMOVED


def import_paths() -> Sequence[str]:
    """Returns the absolute paths from which this process currently imports modules."""
    # Python ignores entries that are not strings.
    return _absolute(current_directory(), *[path for path in sys.path if isinstance(path, str)])


@functools.lru_cache(maxsize=1)
def _absolute(directory: str, *paths: str) -> Sequence[str]:
    # `..` is kept, because it may follow a link. Bytes that are not UTF-8 are replaced, because the
    # supervisor reads UTF-8. A policy is UTF-8 too, so a writable path can only end above a replaced
    # component.
    joined = [os.path.join(directory, path) for path in paths]
    return [path.encode("utf-8", "replace").decode() for path in joined]


def is_gone(supervisor: Supervisor | None) -> bool:
    """Whether a supervisor has ended, or belongs to another process."""
    return supervisor is not None and (supervisor is not _shared or supervisor.process.poll() is not None)


def connect_to(supervisor: Supervisor | None) -> socket.socket | None:
    """Connects to this supervisor. Returns `None` if it is not this process's current supervisor, or if
    another thread holds the lock for longer than a second."""
    if not _lock.acquire(timeout=1):
        return None
    try:
        if supervisor is None or supervisor is not _shared or supervisor.process.returncode is not None:
            return None
        return supervisor.connect()
    except OSError:
        return None
    finally:
        _lock.release()


def stand_by() -> None:
    """Prepares a connection for the next session. Does nothing if another thread holds the lock, because
    closing a sandbox must not wait; the next session then creates its own connection."""
    if _lock.acquire(blocking=False):
        try:
            if _shared is not None:
                _shared.stand_by()
        finally:
            _lock.release()


def _end_at_exit() -> None:
    """Ends the supervisor. Daemon threads may still use its sessions, or open others."""
    global _shared
    # With a timeout, so that no thread can keep the process from exiting.
    is_locked = _lock.acquire(timeout=1)
    shared, _shared = _shared, None
    if is_locked:
        _lock.release()
    if shared is not None:
        shared.is_closed = True
        # Not by the finalizer, which does nothing after `weakref` has run its own exit handler.
        _end(shared.process, shared.control, shared._spare)


atexit.register(_end_at_exit)


def _forget_in_child() -> None:
    """Closes a forked process's copies of the sockets. They would keep the parent's supervisor alive, and
    could be used to write to the parent's sessions."""
    global _lock, _shared, this_process
    this_process = object()
    # The thread that held the lock does not exist in this process.
    _lock = threading.RLock()
    _shared = None
    for supervisor in list(_supervisors):
        supervisor.forget()
    _supervisors.clear()
    for connection in list(_connections):
        connection.forked = True
        connection.socket.close()


# Delays a fork while a supervisor is being started: the child would inherit its socket unknowingly.
os.register_at_fork(
    before=lambda: _lock.acquire(),
    after_in_parent=lambda: _lock.release(),
    after_in_child=_forget_in_child,
)


def _encoded_environ() -> dict[Any, Any] | None:
    """Copies the encoded data of `os.environ`; `None` if this Python stores it differently. Comparing the
    copy takes a hundredth of the time of decoding each variable."""
    kept = getattr(os.environ, "_data", None)
    return dict(kept) if type(kept) is dict else None

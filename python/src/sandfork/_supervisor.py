"""The supervisor: one `sandfork serve` for each process, started when it is first needed.

It ends with this process, however that ends, because it sees the end of its control socket; nothing
else has that socket, neither a program that this process runs nor a process forked from it.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import subprocess
import threading
import time
import weakref
from collections import deque
from typing import Any

from . import _binary
from ._exceptions import BinaryNotFound, SupervisorDied, SystemFailure

# Seconds. It has nothing to do at its end but to kill workers.
_GRACE = 5.0


class Supervisor:
    """A running supervisor."""

    def __init__(self) -> None:
        binary = _binary.find()
        # What `[env] pass` would take from it: sessions are told how this process's differs.
        self.environ = dict(os.environ)
        self._encoded = _encoded_environ()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.process = subprocess.Popen(
                [binary, "serve", "--control-fd", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self.environ,
                # A Ctrl-C at the terminal is this process's to handle: it interrupts one cell.
                start_new_session=True,
            )
        except OSError as error:
            self.control.close()
            raise BinaryNotFound(f"{binary} could not be executed: {error.strerror}") from error
        finally:
            theirs.close()
        # At most one, whose thread at the other end waits already: starting it takes longer than opening a
        # session.
        self._spare: deque[socket.socket] = deque()
        self.end = weakref.finalize(self, _end, self.process, self.control, self._spare)

    def connect(self) -> socket.socket:
        """A connection, on which a session can be opened. Raises `OSError` when the supervisor is gone."""
        while self._spare:
            spare = self._spare.pop()
            if _is_open(spare):
                return spare
            spare.close()
        return self._connected()

    def stand_by(self) -> None:
        """Has a connection ready for whoever wants the next one. Where that cannot be, he makes his own."""
        if not self._spare:
            with contextlib.suppress(OSError):
                self._spare.append(self._connected())

    def _connected(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
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
        """Whether this process's environment may be another than this supervisor's."""
        encoded = self._encoded
        return encoded is None or encoded != _encoded_environ()

    def forget(self) -> None:
        """In a forked process: lets go of the parent's supervisor without touching it."""
        self.end.detach()
        _close_all(self.control, self._spare)
        # It is no child of this process, whose `Popen` must not wait for it.
        self.process.returncode = 0

    def describe_end(self) -> str | None:
        """How it ended; `None` if it runs."""
        # Its sockets close a little before it can be waited for.
        for _ in range(50):
            code = self.process.poll()
            if code is not None:
                how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
                return f"the supervisor (process {self.process.pid}) {how}"
            time.sleep(0.001)
        return None


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
    """Whether nobody has closed the other end, from which nothing comes before it is asked."""
    try:
        connected.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


# Stands for this process: a forked one has another, and asking the kernel takes longer.
this_process = object()
_lock = threading.Lock()
_shared: Supervisor | None = None
# Connections of sessions: what a forked process has to close.
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """One session's socket, and the supervisor at its other end."""

    __slots__ = ("__weakref__", "forked", "socket", "supervisor")

    def __init__(self, connected: socket.socket, supervisor: Supervisor | None) -> None:
        self.socket = connected
        self.supervisor = supervisor
        self.forked = False
        """Whether it belongs to the process that this one was forked from."""
        _connections.add(self)

    def died(self) -> SupervisorDied:
        """Why nothing more comes."""
        end = self.supervisor.describe_end() if self.supervisor is not None else None
        said = end or "the supervisor closed the session's connection"
        return SupervisorDied(
            f"{said}: the session's variables, imports and files are lost; restart() or another session "
            "starts another supervisor"
        )

    def environ(self) -> dict[str, str | None]:
        """How this process's environment differs from the supervisor's."""
        if self.supervisor is None or not self.supervisor.environ_differs():
            return {}
        now, then = dict(os.environ), self.supervisor.environ
        changed: dict[str, str | None] = {k: v for k, v in now.items() if then.get(k) != v}
        changed.update((k, None) for k in then if k not in now)
        return {k: v for k, v in changed.items() if _is_unicode(k) and _is_unicode(v or "")}


def connect() -> Connection:
    """A connection to this process's supervisor, which is started if there is none, or none any more."""
    global _shared
    with _lock:
        try:
            if _shared is not None and _shared.process.returncode is None:
                with contextlib.suppress(ConnectionError):
                    return Connection(_shared.connect(), _shared)
            if _shared is not None:
                _shared.end()
            _shared = Supervisor()
            return Connection(_shared.connect(), _shared)
        except ConnectionError as error:
            how = _shared.describe_end() if _shared is not None else None
            raise SystemFailure(f"{how or 'the supervisor ended'}, right after it started") from error
        except OSError as error:
            # Such as too many open files: the supervisor, and what it serves, go on.
            raise SystemFailure(f"no connection to the supervisor: {error.strerror}") from error


def stand_by() -> None:
    """Has another connection ready, for whoever opens the next session."""
    with _lock:
        if _shared is not None:
            _shared.stand_by()


def _forget_in_child() -> None:
    """A forked process has copies of every socket. With them it would keep the parent's supervisor
    alive, and could speak on the parent's sessions."""
    global _lock, _shared, this_process
    this_process = object()
    # Whoever held it does not exist here.
    _lock = threading.Lock()
    supervisor, _shared = _shared, None
    if supervisor is not None:
        supervisor.forget()
    for connection in list(_connections):
        connection.forked = True
        connection.socket.close()


# Not while a supervisor is being started: the child would have its socket, and not know of it.
os.register_at_fork(
    before=lambda: _lock.acquire(),
    after_in_parent=lambda: _lock.release(),
    after_in_child=_forget_in_child,
)


def _encoded_environ() -> dict[Any, Any] | None:
    """What `os.environ` keeps, if it keeps it as it always has: comparing that takes a hundredth of the
    time that decoding each variable does."""
    kept = getattr(os.environ, "_data", None)
    return dict(kept) if type(kept) is dict else None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

"""The connection of one session, for both drivers: frames over a socket."""

from __future__ import annotations

import _socket
import select
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

from ._exceptions import ProtocolError, SessionClosed, SessionForked, SystemFailure
from ._frames import Decoder, encode
from ._supervisor import Connection

# Most messages fit, and allocating a buffer of this size needs no system call.
_CHUNK = 64 << 10
_LARGEST_CHUNK = 1 << 20
# The supervisor passes one descriptor with a frame. Room for more makes a violation visible.
_ANCILLARY = socket.CMSG_SPACE(4 * struct.calcsize("i"))
# Plain integers: operations on their enum take longer than a system call.
_CLOEXEC = int(socket.MSG_CMSG_CLOEXEC)
_TRUNCATED = int(socket.MSG_CTRUNC)
DONT_WAIT = int(socket.MSG_DONTWAIT)
_PEEK = int(socket.MSG_PEEK) | DONT_WAIT
_INTERRUPT = encode({"kind": "interrupt"})


class Link:
    """A connection with its decoder. Only the thread that has the turn reads; any thread may call
    `interrupt`."""

    def __init__(self, connection: Connection, *, blocking: bool) -> None:
        self.connection = connection
        self._socket = connection.socket
        # Blocking sockets of gevent and eventlet wait in spite of MSG_DONTWAIT, so theirs are nonblocking.
        # The driver then waits in their `poll`, which lets other greenlets run.
        self._socket.setblocking(blocking and isinstance(self._socket, _socket.socket))
        self.decoder = Decoder()
        # Data read from the socket but not yet fed to the decoder: at most one result of recvmsg(2).
        self._arrived: list[tuple[bytes, list[Any], int, Any]] = []
        self._half_read = False
        self.half_written = False
        """Whether a message is partly written."""
        self.writing = threading.RLock()
        """Held while a message is written, so that messages do not interleave. A signal handler or a
        finalizer may run in the thread that holds it, and must not wait for it."""
        self._interrupt_wanted = False
        self.closed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def torn(self) -> bool:
        """Whether an exception, for example of a signal handler, interrupted a read or a write.

        A torn connection must not be read: the next bytes may not be the start of a frame, and may be
        controlled by the guest.
        """
        return self._half_read or self.half_written

    def read(self, flags: int = 0) -> bool:
        """Feeds the decoder with the available data. Returns false at the end of the stream. Raises
        `BlockingIOError` if there is no data and the socket or the flags are nonblocking."""
        if not self._arrived:
            self._receive(flags)
        if not self._arrived:
            return False
        data, ancillary, message_flags, _ = self._arrived[0]
        self._half_read = True
        descriptors = _passed(ancillary) if ancillary else ()
        if len(descriptors) > 1:
            raise ProtocolError("the supervisor passed more files with a message than one")
        self.decoder.feed(data, descriptors)
        self._arrived.clear()
        self._half_read = False
        if message_flags & _TRUNCATED:
            raise SystemFailure(
                "the supervisor passed a file, and this process has no descriptor left for it: raise the "
                "limit of open files (RLIMIT_NOFILE, `ulimit -n`)"
            )
        if data and self.connection.supervisor is not None:
            self.connection.supervisor.has_answered = True
        return bool(data)

    def ahead(self) -> bytes:
        """Peeks at unread data, up to one chunk."""
        try:
            return self.decoder.rest() + self._socket.recv(_CHUNK, _PEEK)
        except OSError:
            return self.decoder.rest()

    def _receive(self, flags: int) -> None:
        """Receives from the socket. Receives nothing if the peer is gone."""
        wanted = self.decoder.wanted()
        size = _CHUNK if wanted <= _CHUNK else min(wanted, _LARGEST_CHUNK)
        take = self._socket.recvmsg
        try:
            # This is one call into C code, during which no signal handler runs. A handler's exception is
            # raised either before the bytes leave the socket or after they are in the list.
            self._arrived.extend(map(take, (size,), (_ANCILLARY,), (_CLOEXEC | flags,)))
        except ConnectionError:
            return
        except OSError as error:
            raise self._unusable(error) from None

    def write(self, data: bytes | memoryview, descriptor: int | None) -> int:
        """Writes as much as the socket accepts without blocking, and returns the number of bytes. If the peer
        is gone, returns the full length, so that its last messages are read next. Raises `BlockingIOError` if
        the socket accepts no data."""
        try:
            if descriptor is None:
                return self._socket.send(data, DONT_WAIT)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))]
            return self._socket.sendmsg([data], rights, DONT_WAIT)
        except ConnectionError:
            return len(data)
        except OSError as error:
            raise self._unusable(error) from None

    def interrupt(self) -> None:
        """Asks the supervisor to interrupt the running cell."""
        self._interrupt_wanted = True
        self.flush_interrupt()

    def flush_interrupt(self) -> None:
        """Writes a requested interrupt, now or when the thread that is writing calls this method.

        Never waits for the lock: a signal handler may run in the thread that holds it.
        """
        while self._interrupt_wanted and self.writing.acquire(blocking=False):
            try:
                if self.half_written:
                    return
                if self._interrupt_wanted:
                    # The message is short enough that the socket accepts either all of it or nothing.
                    self.write(_INTERRUPT, None)
                    self._interrupt_wanted = False
            except BlockingIOError:
                # The socket is full: the supervisor is still reading an earlier message.
                return
            finally:
                self.writing.release()

    def cancel_interrupt(self) -> None:
        """Discards an unwritten interrupt, because its cell has ended."""
        self._interrupt_wanted = False

    def _unusable(self, error: OSError) -> Exception:
        """Returns the exception for a failed socket operation."""
        if error.errno is None or isinstance(error, BlockingIOError):
            # Without an errno it is an exception of a signal handler, such as `TimeoutError`.
            return error
        if self.connection.forked:
            return SessionForked(
                "this session belongs to the process that this one was forked from: open one here"
            )
        if self.closed:
            return SessionClosed("the session is closed")
        return SystemFailure(f"the connection to the supervisor failed: {error.strerror}")

    def gone(self) -> Exception:
        """Returns the exception for the end of the stream."""
        if self.closed:
            return SessionClosed("the session was closed while it was in use")
        return self.connection.died()

    def shut_down(self) -> None:
        """Ends the session from another thread. The reading thread then sees the end of the stream."""
        self.closed = True
        if not self.connection.forked:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                # The socket is closed already, or the peer closed it first.
                return

    def close(self) -> None:
        """Closes the connection. The supervisor then ends the session's worker."""
        self.closed = True
        self._socket.close()
        arrived = [descriptor for message in self._arrived for descriptor in _passed(message[1])]
        self._arrived.clear()
        self.decoder.drop_descriptors(arrived)


def is_ready(descriptor: int, events: int, seconds: float | None = None) -> bool:
    """Waits for one of these poll(2) events. Returns false at the timeout. Other greenlets run meanwhile,
    because gevent and eventlet replace the functions of `select`."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(descriptor, events)
        return bool(poll.poll(None if seconds is None else seconds * 1e3 + 1))
    # eventlet removes `select.poll`.
    reads, writes = ([descriptor] if events & one else [] for one in (select.POLLIN, select.POLLOUT))
    return any(select.select(reads, writes, [], seconds))


def _passed(ancillary: list[Any]) -> Sequence[int]:
    """Returns the descriptors in the ancillary data of recvmsg(2)."""
    descriptors: list[int] = []
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            count = len(content) // struct.calcsize("i")
            descriptors.extend(struct.unpack_from(f"{count}i", content))
    return descriptors

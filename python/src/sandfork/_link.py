"""One session's connection: frames over a socket, for both drivers."""

from __future__ import annotations

import os
import socket
import struct
import threading
from typing import Any

from ._exceptions import ProtocolError, SessionClosed, SessionForked, SystemFailure
from ._frames import Decoder, encode
from ._supervisor import Connection

# Most messages fit, and a buffer of this size costs no system call.
_CHUNK = 64 << 10
_LARGEST_CHUNK = 1 << 20
# The supervisor passes one descriptor with a frame; room for more shows where it passes more.
_ANCILLARY = socket.CMSG_SPACE(4 * struct.calcsize("i"))
# Plain numbers: operations of their enumeration take longer than a system call.
_CLOEXEC = int(socket.MSG_CMSG_CLOEXEC)
_TRUNCATED = int(socket.MSG_CTRUNC)
DONT_WAIT = int(socket.MSG_DONTWAIT)
_INTERRUPT = encode({"kind": "interrupt"})


class Link:
    """A connection with its decoder. Reading is its user's; `interrupt` is for any thread."""

    __slots__ = ("_interrupt_wanted", "_socket", "closed", "connection", "decoder", "writing")

    def __init__(self, connection: Connection, *, blocking: bool) -> None:
        self.connection = connection
        self._socket = connection.socket
        self._socket.setblocking(blocking)
        self.decoder = Decoder()
        self.writing = threading.Lock()
        """Held while a message is written: two must not be mixed."""
        self._interrupt_wanted = False
        self.closed = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self, flags: int = 0) -> bool:
        """Feeds the decoder with what is there; false at the end of the stream. Raises
        `BlockingIOError` where nothing is there and the socket or the flags do not wait."""
        size = min(max(_CHUNK, self.decoder.wanted()), _LARGEST_CHUNK)
        try:
            data, ancillary, told, _ = self._socket.recvmsg(size, _ANCILLARY, _CLOEXEC | flags)
        except ConnectionError:
            return False
        except BlockingIOError:
            raise
        except OSError as error:
            raise self.unusable(error) from None
        if ancillary or told & _TRUNCATED:
            self._feed_with_descriptors(data, ancillary, told)
        else:
            self.decoder.feed(data)
        return bool(data)

    def _feed_with_descriptors(self, data: bytes, ancillary: list[Any], told: int) -> None:
        descriptors: list[int] = []
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                count = len(content) // struct.calcsize("i")
                descriptors.extend(struct.unpack_from(f"{count}i", content))
        self.decoder.feed(data, descriptors)
        if told & _TRUNCATED or len(descriptors) > 1:
            self.decoder.drop_descriptors()
            raise ProtocolError("the supervisor passed more files with a message than one")

    def write(self, data: memoryview, descriptor: int | None) -> int:
        """Writes what the socket takes at once; how much that was. All of it where the other side
        is gone: what it said before it went is read next. Raises `BlockingIOError` where it takes
        nothing."""
        try:
            if descriptor is None:
                return self._socket.send(data, DONT_WAIT)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))]
            return self._socket.sendmsg([data], rights, DONT_WAIT)
        except ConnectionError:
            return len(data)
        except BlockingIOError:
            raise
        except OSError as error:
            raise self.unusable(error) from None

    def interrupt(self) -> None:
        """Asks the supervisor to interrupt the cell that runs."""
        self._interrupt_wanted = True
        self.flush_interrupt()

    def flush_interrupt(self) -> None:
        """Writes an interrupt that is wanted, now or when whoever is writing calls this.

        Never waits for the lock: a signal handler may have stopped the very thread that holds it.
        """
        while self._interrupt_wanted and self.writing.acquire(blocking=False):
            try:
                if self._interrupt_wanted:
                    # So short that the socket takes all of it or nothing.
                    self.write(memoryview(_INTERRUPT), None)
                    self._interrupt_wanted = False
            except BlockingIOError:
                # The socket is full: the supervisor is at a message of ours that comes before.
                return
            finally:
                self.writing.release()

    def cancel_interrupt(self) -> None:
        """Forgets an interrupt that was not written: its cell has ended."""
        self._interrupt_wanted = False

    def unusable(self, error: OSError) -> Exception:
        """Why the socket cannot be used."""
        if self.connection.forked:
            return SessionForked(
                "this session belongs to the process that this one was forked from: open one here"
            )
        if self.closed:
            return SessionClosed("the session is closed")
        return SystemFailure(f"the connection to the supervisor failed: {error.strerror}")

    def gone(self) -> Exception:
        """Why the stream has ended."""
        if self.closed:
            return SessionClosed("the session was closed while it was in use")
        return self.connection.died()

    def shut_down(self) -> None:
        """Ends the session from another thread than the one that is reading, which then sees it."""
        self.closed = True
        if not self.connection.forked:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                # It is closed, or the other side was faster.
                return

    def close(self) -> None:
        """Ends the session; its supervisor then ends its worker."""
        self.closed = True
        self._socket.close()
        self.decoder.drop_descriptors()


def close_descriptor(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)

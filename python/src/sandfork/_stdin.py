"""Copies a caller's input into a pipe for a guest's standard input."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import stat
import threading

from ._exceptions import RequestError
from ._link import is_ready
from ._options import Stdin, utf_8
from ._supervisor import above_streams

# The minimum capacity of a pipe: the default is 64 KiB, but a user with many pipes gets single pages
# (pipe(7)).
_FITS_A_PIPE = 4096
_CHUNK = 64 << 10
# The write ends of pipes of this process. A forked child must not keep them open, or the guest would never
# read EOF.
_writers: set[int] = set()


def piped(stdin: Stdin) -> int:
    """Returns the read end of a pipe into which the input is copied. The caller owns the descriptor.

    The caller's own descriptor is not passed: a guest could change the file's mode, times and contents, write
    to the pipe or terminal behind it, and learn its path.
    """
    source = _source(stdin)
    try:
        reader, writer = map(above_streams, os.pipe())
    except BaseException:
        source.close()
        raise
    _writers.add(writer)
    try:
        os.set_blocking(writer, False)
        if source.feeds_at_once(writer):
            _close(writer)
            source.close()
            return reader
        # The thread ends at the end of the input, or when all read ends are closed.
        threading.Thread(target=_feed, args=(source, writer), name="sandfork-stdin", daemon=True).start()
    except BaseException:
        os.close(reader)
        _close(writer)
        source.close()
        raise
    return reader


class _Source:
    """An open file of the caller, read from its current position. The position of a regular file does not
    change."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._position = os.lseek(descriptor, 0, os.SEEK_CUR) if self._is_regular else 0

    def feeds_at_once(self, writer: int) -> bool:
        """Writes as much of a regular file as any pipe holds. Returns whether that is the whole input."""
        if not self._is_regular:
            return False
        self._position += os.write(writer, os.pread(self._descriptor, _FITS_A_PIPE, self._position))
        return not os.pread(self._descriptor, 1, self._position)

    def read(self, writer: int) -> bytes:
        """Reads the next bytes; empty at the end of the input, or when all read ends of the pipe are
        closed."""
        if self._is_regular:
            data = os.pread(self._descriptor, _CHUNK, self._position)
            self._position += len(data)
            return data
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        # For the pipe, only an error is polled for: no process can read from it.
        poll.register(writer, 0)
        while writer not in dict(poll.poll()):
            try:
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                # Another process has read the data first.
                continue
        return b""

    def close(self) -> None:
        os.close(self._descriptor)


class _Bytes:
    """Bytes of the caller."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def feeds_at_once(self, writer: int) -> bool:
        """Writes the input if it fits into the pipe. Returns whether it did."""
        if len(self._data) > _FITS_A_PIPE:
            return False
        os.write(writer, self._data)
        return True

    def read(self, writer: int) -> bytes:
        """Returns all bytes at the first call, and none later."""
        data, self._data = self._data, b""
        return data

    def close(self) -> None:
        self._data = b""


def _source(stdin: Stdin) -> _Source | _Bytes:
    if isinstance(stdin, bytes):
        return _Bytes(stdin)
    if isinstance(stdin, str):
        return _Bytes(utf_8(stdin, "stdin", "surrogateescape"))
    try:
        # A copy, so that the caller can close the file.
        descriptor = fcntl.fcntl(stdin.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
    except (AttributeError, OSError, ValueError):
        kind = type(stdin).__name__
        raise RequestError(f"stdin is of type {kind}: give text, bytes or an open file") from None
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
        os.close(descriptor)
        raise RequestError("stdin is open for writing: give a file that is open for reading")
    return _Source(descriptor)


def _feed(source: _Source | _Bytes, writer: int) -> None:
    """Copies the input into the pipe."""
    # A guest may not read all input. If this process does not ignore SIGPIPE, writing would then kill it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
    try:
        while True:
            rest = memoryview(source.read(writer))
            if not rest:
                return
            while rest:
                try:
                    rest = rest[os.write(writer, rest) :]
                except BlockingIOError:
                    # A blocking write would stop all greenlets of gevent and eventlet.
                    is_ready(writer, select.POLLOUT)
    except BrokenPipeError:
        return
    except OSError as error:
        # Imported here, because the import takes longer than a run.
        import logging

        logging.getLogger("sandfork").warning("a guest's stdin ended early: %s", error.strerror)
    finally:
        _close(writer)
        source.close()


def _close(writer: int) -> None:
    _writers.discard(writer)
    os.close(writer)


def _close_in_child() -> None:
    while _writers:
        os.close(_writers.pop())


os.register_at_fork(after_in_child=_close_in_child)

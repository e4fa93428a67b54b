"""The standard input of a guest."""

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

# What every pipe holds: the default is 64 KiB, but a user with many pipes gets single pages (pipe(7)).
_FITS_A_PIPE = 4096
_CHUNK = 64 << 10
# The ends of pipes that this process writes to. A forked process must not keep them open, or the guest would
# wait for more.
_writers: set[int] = set()


def piped(stdin: Stdin) -> int:
    """A pipe from which the guest reads the input. The caller owns the descriptor.

    With an open file of the caller a guest could change its mode, its times and its contents, write to the
    pipe or the terminal that it is, and learn its path.
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
        # Ends with the input, or when no process can read it any more.
        threading.Thread(target=_feed, args=(source, writer), name="sandfork-stdin", daemon=True).start()
    except BaseException:
        os.close(reader)
        _close(writer)
        source.close()
        raise
    return reader


class _Source:
    """An open file of the caller, from its position on. A regular file keeps its position."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._position = os.lseek(descriptor, 0, os.SEEK_CUR) if self._is_regular else 0

    def feeds_at_once(self, writer: int) -> bool:
        """Writes the input, if it is known to be short."""
        if not self._is_regular:
            return False
        self._position += os.write(writer, os.pread(self._descriptor, _FITS_A_PIPE, self._position))
        return not os.pread(self._descriptor, 1, self._position)

    def read(self, writer: int) -> bytes:
        """The next bytes; none at the end of the input, or when no process reads from the pipe."""
        if self._is_regular:
            data = os.pread(self._descriptor, _CHUNK, self._position)
            self._position += len(data)
            return data
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        # Of the pipe, an error is all that is asked for.
        poll.register(writer, 0)
        while writer not in dict(poll.poll()):
            try:
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                # Another reader was faster.
                continue
        return b""

    def close(self) -> None:
        os.close(self._descriptor)


class _Bytes:
    """Bytes of the caller."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def feeds_at_once(self, writer: int) -> bool:
        """Writes the input, if it is short."""
        if len(self._data) > _FITS_A_PIPE:
            return False
        os.write(writer, self._data)
        return True

    def read(self, writer: int) -> bytes:
        """All bytes the first time."""
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
    # A guest need not read all. In a process that does not ignore this signal, writing would end the process.
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
                    # A write that waits would stop all greenlets of gevent and eventlet.
                    is_ready(writer, select.POLLOUT)
    except BrokenPipeError:
        return
    except OSError as error:
        # Here, because importing it takes longer than a run.
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

"""Reads and writes the files in a session's work directory.

The supervisor opens each file by a path that cannot leave that directory, follows no link, and opens
only regular files. This module reads and writes the open descriptor, so renaming or replacing the file
meanwhile has no effect.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import stat
from collections.abc import Iterable, Iterator
from typing import IO, Any, Callable, NamedTuple, TypeVar, Union

from ._driver import Driver, SyncDriver, Work
from ._exceptions import FileTooLarge, RequestError, from_errno
from ._options import checked_path, utf_8
from ._session import Session
from ._watches import FileWatch, OnEvent, watched

Path = Union[str, "os.PathLike[str]"]
Data = Union[bytes, bytearray, memoryview, str, IO[bytes], IO[str]]
T = TypeVar("T")

MAX_BYTES = 64 << 20
"""Default of `max_bytes`: 64 MiB."""
_CHUNK = 1 << 20


class FileEntry(NamedTuple):
    """One entry of a directory of the session."""

    name: str
    type: str
    """`file`, `dir`, `symlink` or `other`."""
    size: int
    """Size in bytes."""
    modified: float
    """Time of the last modification, in seconds since 1970."""


class BaseFiles:
    """The part of `Files` and `AsyncFiles` that does not wait for the result."""

    __slots__ = ("_driver",)

    _watch_kind: Callable[..., Any]

    def __init__(self, driver: Driver[Session]) -> None:
        self._driver = driver

    def _requested(self, operation: str, path: Path, convert: Callable[[Any], T], **options: Any) -> Work[T]:
        request = self._driver.session.file(operation, checked_path(path), **options)
        return convert((yield from self._driver.conduct(request)))

    def _copied(self, operation: str, path: Path, copy: Callable[[_Opened], T], **options: Any) -> Work[T]:
        """Copies from or to a file that the supervisor opens."""
        opened = yield from self._requested(operation, path, dict, **options)

        def copied() -> T:
            with io.FileIO(opened["descriptor"], "r" if operation == "open_read" else "w") as file:
                return copy(_Opened(file, int(opened.get("size") or 0), checked_path(path)))

        return (yield from self._driver.in_thread(copied))

    def _watched(self, path: Path, recursive: bool, on_event: OnEvent | None) -> Work[Any]:
        return watched(self._driver, self._watch_kind, checked_path(path), bool(recursive), on_event)

    def _written(self, path: Path, data: Data, *, append: bool = False) -> Work[None]:
        if not isinstance(data, (bytes, bytearray, memoryview, str)) and not hasattr(data, "read"):
            raise RequestError(f"the data is of type {type(data).__name__}: give bytes, text or an open file")
        if isinstance(data, str):
            # Encoded before the file is truncated, so that an error leaves it unchanged.
            data = utf_8(data, "the data")
        size = None if append else _size(data)
        if size is None:
            return self._copied("open_write", path, lambda file: file.write(data), append=bool(append))
        # Opened for appending, because the supervisor truncates a file that it opens for writing.
        return self._copied("open_write", path, lambda file: file.replace(data, size), append=True)


class Files(BaseFiles):
    """The files of a session. A path is relative to its work directory, or absolute and inside it.

    If the session's file system refuses an operation, the method raises `FileError`, an `OSError`.
    """

    __slots__ = ()

    _driver: SyncDriver[Session]
    _watch_kind = FileWatch

    def write(self, path: Path, data: Data, *, append: bool = False) -> None:
        """Writes bytes, text (as UTF-8) or the content of an open file. The directory must exist.

        If the data does not fit, an existing file is unchanged, and a new one is empty. This does not hold if
        `data` is an open text file, or an open file that is not a regular file: then the file contains the
        part that fits.
        """
        return self._driver.complete(self._written(path, data, append=append))

    def read(self, path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
        """Reads a file's bytes. Raises `FileTooLarge` if it is larger than `max_bytes`."""
        return self._driver.complete(self._copied("open_read", path, lambda file: file.read(max_bytes)))

    def read_bytes(self, path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
        """Reads a file's bytes. An alias of `read`."""
        return self.read(path, max_bytes=max_bytes)

    def read_text(
        self, path: Path, *, encoding: str = "utf-8", errors: str = "strict", max_bytes: int = MAX_BYTES
    ) -> str:
        """Reads a file as text. Raises `FileTooLarge` if it is larger than `max_bytes`."""
        copy = self._copied("open_read", path, lambda file: file.read(max_bytes).decode(encoding, errors))
        return self._driver.complete(copy)

    def list(self, path: Path = ".") -> list[FileEntry]:
        """Lists the entries of a directory, in no particular order."""
        request = self._requested("list", path, lambda answer: [_entry(one) for one in answer["entries"]])
        return self._driver.complete(request)

    def stat(self, path: Path) -> FileEntry:
        """Returns the entry of a path. A symbolic link is not followed."""
        request = self._requested("stat", path, lambda answer: _entry(answer["entry"]))
        return self._driver.complete(request)

    def exists(self, path: Path) -> bool:
        """Returns whether the path exists. A symbolic link is not followed."""

        def exists() -> Work[bool]:
            try:
                return (yield from self._requested("stat", path, lambda _: True))
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    return False
                raise

        return self._driver.complete(exists())

    def remove(self, path: Path, *, recursive: bool = False) -> None:
        """Removes a file, a link or a directory. A directory that is not empty needs `recursive`."""
        request = self._requested("remove", path, lambda _: None, recursive=bool(recursive))
        return self._driver.complete(request)

    def make_dir(self, path: Path, *, parents: bool = False) -> None:
        """Creates a directory. `parents` also creates its parents, and allows an existing directory."""
        request = self._requested("make_dir", path, lambda _: None, parents=bool(parents))
        return self._driver.complete(request)

    def upload(self, local: Path, path: Path) -> None:
        """Copies a file of the host into the session."""

        def copied() -> Work[None]:
            with open(local, "rb") as data:
                yield from self._written(path, data)

        return self._driver.complete(copied())

    def download(self, path: Path, local: Path, *, max_bytes: int = MAX_BYTES) -> None:
        """Copies a file of the session to the host. `local` is replaced once the copy is complete."""
        copy = self._copied("open_read", path, lambda file: _save(file.chunks(max_bytes), local))
        return self._driver.complete(copy)

    def watch(
        self, path: Path = ".", *, recursive: bool = False, on_event: OnEvent | None = None
    ) -> FileWatch:
        """Watches a directory, and with `recursive` its subdirectories, even while a cell runs.

            with sbx.files.watch("src", recursive=True) as watch:
                for event in watch:
                    print(event.type, event.path)

        With `on_event`, the function is called with each event in a separate thread, until the watch ends or
        the function raises. Writes of the guest to a memory-mapped file are not reported.
        """
        watch: FileWatch = self._driver.complete(self._watched(path, recursive, on_event))
        return watch


class _Opened(NamedTuple):
    """A file of the session that the supervisor opened."""

    file: io.FileIO
    size: int
    name: str

    def read(self, most: int) -> bytes:
        return b"".join(self.chunks(most))

    def chunks(self, most: int) -> Iterator[bytes]:
        """Yields the file's bytes. Raises `FileTooLarge` if it has more than `most`."""
        if self.size > most:
            raise self._too_large(f"{self.size} bytes", most)
        # The guest may be writing. Reading one byte more than allowed distinguishes "too long" from "just
        # fits".
        left = most + 1
        while left > 0:
            chunk = self.file.read(min(_CHUNK, left))
            if not chunk:
                return
            left -= len(chunk)
            if left > 0:
                yield chunk
        raise self._too_large("a file that grows while it is read", most)

    def replace(self, data: Data, size: int) -> None:
        """Replaces the file's content with data of this size. If the data does not fit, the file is
        unchanged."""
        number = self.file.fileno()
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) & ~os.O_APPEND)
        before = os.fstat(number).st_size
        try:
            if 0 < before < size:
                os.posix_fallocate(number, 0, size)
        except OSError as error:
            # Any other error means that this file system cannot reserve space.
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                os.ftruncate(number, before)
                raise self._failed(error) from None
        try:
            self.write(data)
        except OSError:
            if before == 0:
                with contextlib.suppress(OSError):
                    os.ftruncate(number, 0)
            raise
        if self.file.tell() < before:
            os.ftruncate(number, self.file.tell())

    def write(self, data: Data) -> None:
        """Writes bytes, text or the content of an open file."""
        if isinstance(data, (bytes, bytearray, memoryview, str)):
            self._write(data)
            return
        # A binary file returns bytes, a text file returns text.
        while chunk := data.read(_CHUNK):
            self._write(chunk)

    def _write(self, data: bytes | bytearray | memoryview | str) -> None:
        if isinstance(data, str):
            data = utf_8(data, "the data")
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise RequestError(f"an open file gave a {type(data).__name__}: give one of bytes or text")
        rest = memoryview(data).cast("B")
        try:
            while rest:
                rest = rest[self.file.write(rest) :]
        except OSError as error:
            raise self._failed(error) from None

    def _failed(self, error: OSError) -> OSError:
        message = error.strerror or str(error)
        if error.errno == errno.ENOSPC:
            message += ": filesystem.work_size of the policy is all there is"
        return from_errno(error.errno or errno.EIO, message, self.name)

    def _too_large(self, how: str, most: int) -> FileTooLarge:
        return FileTooLarge(errno.EFBIG, f"{how}, more than max_bytes={most}", self.name)


def _size(data: Data) -> int | None:
    """Returns the size of the data in bytes, if it is known before the data is read."""
    if isinstance(data, memoryview):
        return data.nbytes
    if isinstance(data, (bytes, bytearray)):
        return len(data)
    if isinstance(data, io.BufferedReader) and isinstance(data.raw, io.FileIO):
        about = os.fstat(data.fileno())
        return max(0, about.st_size - data.tell()) if stat.S_ISREG(about.st_mode) else None
    return None


def _save(chunks: Iterable[bytes], local: Path) -> None:
    """Writes a file of the host, and replaces an existing one atomically."""
    whole = os.fspath(local)
    part = f"{whole}.{os.urandom(4).hex()}.part"
    with open(part, "xb") as copy:
        try:
            copy.writelines(chunks)
            copy.close()
            os.replace(part, whole)
        except BaseException:
            os.unlink(part)
            raise


def _entry(answer: Any) -> FileEntry:
    return FileEntry(str(answer["name"]), str(answer["type"]), int(answer["size"]), float(answer["modified"]))

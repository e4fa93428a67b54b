"""The files in a session's work directory.

The supervisor opens each file by a path that cannot leave that directory, follows no link, and opens
only regular files. This module reads and writes the open file, so the guest may rename or replace it
meanwhile without effect.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _transfer
from ._exceptions import RequestError
from ._transfer import Data, Path

if TYPE_CHECKING:
    from ._async_driver import AsyncDriver
    from ._session import Session
    from ._sync_driver import SyncDriver

MAX_BYTES = 64 << 20
"""Default of `max_bytes`: 64 MiB."""


class FileEntry(NamedTuple):
    """One entry of a directory of the session."""

    name: str
    type: str
    """`file`, `dir`, `symlink` or `other`."""
    size: int
    """Size in bytes."""
    modified: float
    """Time of the last modification, in seconds since 1970."""


class Files:
    """The files of a session. A path is relative to its work directory, or absolute and inside it.

    If the session's file system refuses an operation, the method raises `FileError`, an `OSError`.
    """

    __slots__ = ("_driver",)

    def __init__(self, driver: SyncDriver[Session]) -> None:
        self._driver = driver

    def write(self, path: Path, data: Data, *, append: bool = False) -> None:
        """Writes bytes, text (as UTF-8) or the content of an open file. The directory must exist."""
        name = _name(path)
        steps = self._driver.session.open_file("open_write", name, append=append)
        descriptor, _ = self._driver.perform(steps)
        _transfer.write_all(descriptor, data, name)

    def read(self, path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
        """Reads a file's bytes. Raises `FileTooLarge` if it has more than `max_bytes`."""
        name = _name(path)
        descriptor, size = self._driver.perform(self._driver.session.open_file("open_read", name))
        return _transfer.read_all(descriptor, size, max_bytes, name)

    def read_bytes(self, path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
        """Reads a file's bytes. An alias of `read`."""
        return self.read(path, max_bytes=max_bytes)

    def read_text(
        self,
        path: Path,
        *,
        encoding: str = "utf-8",
        errors: str = "strict",
        max_bytes: int = MAX_BYTES,
    ) -> str:
        """Reads a file as text. Raises `FileTooLarge` if it has more than `max_bytes`."""
        return self.read(path, max_bytes=max_bytes).decode(encoding, errors)

    def list(self, path: Path = ".") -> list[FileEntry]:
        """The entries of a directory, in no particular order."""
        return _entries(self._request("list", path))

    def stat(self, path: Path) -> FileEntry:
        """The entry of a path. A symbolic link is not followed."""
        return _entry(self._request("stat", path)["entry"])

    def exists(self, path: Path) -> bool:
        """Whether the path exists. A symbolic link is not followed."""
        try:
            self.stat(path)
        except OSError as error:
            return _is_there(error)
        return True

    def remove(self, path: Path, *, recursive: bool = False) -> None:
        """Removes a file, a link or a directory. A directory that is not empty needs `recursive`."""
        self._request("remove", path, recursive=recursive)

    def make_dir(self, path: Path, *, parents: bool = False) -> None:
        """Creates a directory. `parents` also creates its parents, and allows an existing directory."""
        self._request("make_dir", path, parents=parents)

    def upload(self, local: Path, path: Path) -> None:
        """Copies a file of the host into the session."""
        with open(local, "rb") as file:
            self.write(path, file)

    def download(self, path: Path, local: Path, *, max_bytes: int = MAX_BYTES) -> None:
        """Copies a file of the session to the host. `local` is replaced once the copy is complete."""
        name = _name(path)
        descriptor, size = self._driver.perform(self._driver.session.open_file("open_read", name))
        _transfer.copy_to(descriptor, size, max_bytes, name, local)

    def _request(self, operation: str, path: Path, **options: Any) -> Any:
        return self._driver.perform(self._driver.session.file(operation, _name(path), **options))


class AsyncFiles:
    """The async version of `Files`. Bytes are copied in a thread."""

    __slots__ = ("_driver",)

    def __init__(self, driver: AsyncDriver[Session]) -> None:
        self._driver = driver

    async def write(self, path: Path, data: Data, *, append: bool = False) -> None:
        """Writes bytes, text (as UTF-8) or the content of an open file. The directory must exist."""
        name = _name(path)
        steps = self._driver.session.open_file("open_write", name, append=append)
        descriptor, _ = await self._driver.perform(steps)
        await self._driver.in_thread(lambda: _transfer.write_all(descriptor, data, name))

    async def read(self, path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
        """Reads a file's bytes. Raises `FileTooLarge` if it has more than `max_bytes`."""
        name = _name(path)
        descriptor, size = await self._driver.perform(self._driver.session.open_file("open_read", name))
        return await self._driver.in_thread(lambda: _transfer.read_all(descriptor, size, max_bytes, name))

    async def read_bytes(self, path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
        """Reads a file's bytes. An alias of `read`."""
        return await self.read(path, max_bytes=max_bytes)

    async def read_text(
        self,
        path: Path,
        *,
        encoding: str = "utf-8",
        errors: str = "strict",
        max_bytes: int = MAX_BYTES,
    ) -> str:
        """Reads a file as text. Raises `FileTooLarge` if it has more than `max_bytes`."""
        return (await self.read(path, max_bytes=max_bytes)).decode(encoding, errors)

    async def list(self, path: Path = ".") -> list[FileEntry]:
        """The entries of a directory, in no particular order."""
        return _entries(await self._request("list", path))

    async def stat(self, path: Path) -> FileEntry:
        """The entry of a path. A symbolic link is not followed."""
        return _entry((await self._request("stat", path))["entry"])

    async def exists(self, path: Path) -> bool:
        """Whether the path exists. A symbolic link is not followed."""
        try:
            await self.stat(path)
        except OSError as error:
            return _is_there(error)
        return True

    async def remove(self, path: Path, *, recursive: bool = False) -> None:
        """Removes a file, a link or a directory. A directory that is not empty needs `recursive`."""
        await self._request("remove", path, recursive=recursive)

    async def make_dir(self, path: Path, *, parents: bool = False) -> None:
        """Creates a directory. `parents` also creates its parents, and allows an existing directory."""
        await self._request("make_dir", path, parents=parents)

    async def upload(self, local: Path, path: Path) -> None:
        """Copies a file of the host into the session."""
        # Opening is fast; the copy runs in a thread.
        with open(local, "rb") as file:  # noqa: ASYNC230
            await self.write(path, file)

    async def download(self, path: Path, local: Path, *, max_bytes: int = MAX_BYTES) -> None:
        """Copies a file of the session to the host. `local` is replaced once the copy is complete."""
        name = _name(path)
        descriptor, size = await self._driver.perform(self._driver.session.open_file("open_read", name))
        await self._driver.in_thread(lambda: _transfer.copy_to(descriptor, size, max_bytes, name, local))

    async def _request(self, operation: str, path: Path, **options: Any) -> Any:
        return await self._driver.perform(self._driver.session.file(operation, _name(path), **options))


def _name(path: Path) -> str:
    name = os.fspath(path)
    if not isinstance(name, str) or "\0" in name:
        raise RequestError(f"{name!r} cannot be a path: give a str without NUL")
    return name


def _entry(told: Any) -> FileEntry:
    return FileEntry(str(told["name"]), str(told["type"]), int(told["size"]), float(told["modified"]))


def _entries(told: Any) -> list[FileEntry]:
    return [_entry(one) for one in told["entries"]]


def _is_there(error: OSError) -> bool:
    """The answer of `exists` for an error of `stat`. Raises errors other than a missing path."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return False
    raise error

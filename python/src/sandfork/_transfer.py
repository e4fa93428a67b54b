"""Copies between the host and files of a session that the supervisor opened. Each function takes ownership
of a descriptor and closes it."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from typing import IO, Union

from ._exceptions import FileTooLarge, RequestError, from_errno

Path = Union[str, "os.PathLike[str]"]
Data = Union[bytes, bytearray, memoryview, str, IO[bytes], IO[str]]

_CHUNK = 1 << 20


def read_all(descriptor: int, size: int, most: int, name: str) -> bytes:
    """Reads a file's bytes. Raises `FileTooLarge` if it has more than `most`."""
    with open(descriptor, "rb", buffering=0) as file:
        return b"".join(_chunks(file, size, most, name))


def copy_to(descriptor: int, size: int, most: int, name: str, local: Path) -> None:
    """Copies a file to `local`, which is replaced once the copy is complete. Raises `FileTooLarge` if the
    file has more than `most` bytes."""
    whole = os.fspath(local)
    part = f"{whole}.{os.urandom(4).hex()}.part"
    with open(descriptor, "rb", buffering=0) as file, open(part, "xb") as copy:
        try:
            for chunk in _chunks(file, size, most, name):
                copy.write(chunk)
            copy.close()
            os.replace(part, whole)
        except BaseException:
            os.unlink(part)
            raise


def write_all(descriptor: int, data: Data, name: str) -> None:
    """Writes bytes, text or the content of an open file."""
    with open(descriptor, "wb", buffering=0) as file:
        if isinstance(data, (bytes, bytearray, memoryview, str)):
            _write(file, data, name)
        else:
            while True:
                # A binary file returns bytes, a text file returns text.
                chunk = data.read(_CHUNK)
                if not chunk:
                    break
                _write(file, chunk, name)


def _chunks(file: io.FileIO, size: int, most: int, name: str) -> Iterator[bytes]:
    if size > most:
        raise _too_large(f"is {size} bytes long", most, name)
    # The guest may be writing. Reading one byte more than allowed distinguishes "too long" from "just fits".
    left = most + 1
    while left > 0:
        chunk = file.read(min(_CHUNK, left))
        if not chunk:
            return
        left -= len(chunk)
        if left > 0:
            yield chunk
    raise _too_large("grows while it is read", most, name)


def _too_large(how: str, most: int, name: str) -> FileTooLarge:
    return FileTooLarge(errno.EFBIG, f"{how}, more than max_bytes={most}", name)


def _write(file: io.FileIO, data: bytes | bytearray | memoryview | str, name: str) -> None:
    if isinstance(data, str):
        data = data.encode()
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise RequestError(f"an open file gave a {type(data).__name__}: give one of bytes or text")
    rest = memoryview(data).cast("B")
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as error:
        said = error.strerror or str(error)
        if error.errno == errno.ENOSPC:
            said += ": filesystem.work_size of the policy is all there is"
        raise from_errno(error.errno or errno.EIO, said, name) from None

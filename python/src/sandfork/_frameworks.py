"""The common part of the framework integrations: a policy with higher limits, and access to all files of a
sandbox.

The frameworks' paths are not restricted to the work directory. A program in the sandbox resolves each path
with the guest's rights. Files inside the work directory are then accessed through `files`. To read another
file, the program copies it into the work directory first; to write one, the program receives the content as
its input.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._driver import Work
from ._exceptions import FileError, SystemFailure, from_errno
from ._programs import CommandResult

if TYPE_CHECKING:
    from typing import Union

    from ._async import AsyncSandbox
    from ._sandbox import Sandbox

    AnySandbox = Union[Sandbox, AsyncSandbox]

ROOMY: dict[str, Any] = {
    "filesystem": {"work_size": "256MiB", "tmp_size": "256MiB"},
    "limits": {"wall": "24h", "memory": "1GiB", "file_size": "256MiB"},
    "session": {"idle": "24h"},
}
"""The default policy of the integrations: `standard` with limits for an agent that works for hours."""
NOT_FOUND = 127
"""The exit status of a shell whose command was not found."""
LONGEST = 24 * 3600.0
"""Seconds that represent no time limit: a session ends after this time in any case."""
MAX_PROGRAMS = 24
"""The maximum number of concurrent programs; others wait. A session has 32, of which some access files."""

# The programs below exit with this number plus an errno, because a shell uses small numbers itself.
_ERRNO = 32
_EXIT = {
    name: _ERRNO + getattr(errno, name) for name in ("EISDIR", "ENOENT", "EINVAL", "EACCES", "EFBIG", "EIO")
}
# `$(...)` removes newlines from the end of what it captures, so a dot is printed after each path.
# Prints the path if it is in the work directory, and copies the file into it otherwise.
_READ = """\
[ -d "$1" ] && exit {EISDIR}
[ -e "$1" ] || exit {ENOENT}
[ -f "$1" ] || exit {EINVAL}
[ -r "$1" ] || exit {EACCES}
size=$(stat -Lc %s -- "$1") || exit {EIO}
[ "$size" -le "$2" ] || exit {EFBIG}
path=$(readlink -f -- "$1" && echo .) || exit {EIO}
path=${{path%??}}
case $path in "$(pwd -P)"/*) printf %s "$path"; exit 0;; esac
head -c "$(($2 + 1))" -- "$path" > "$3" && exit 0
rm -f "$3"
exit {EIO}
""".format_map(_EXIT)
# Prints the path if it is in the work directory, and writes its input to the file otherwise. A regular file
# is replaced atomically. A signal, such as SIGXFSZ for a file that is too large, is raised again.
_WRITE = """\
[ -d "$1" ] && exit {EISDIR}
parent=$(dirname -- "$1" && echo .) || exit {EIO}
parent=${{parent%??}}
mkdir -p -- "$parent" || exit {EACCES}
if [ -e "$1" ]; then [ -w "$1" ]; else [ -w "$parent" ]; fi || exit {EACCES}
path=$(readlink -m -- "$1" && echo .) || exit {EIO}
path=${{path%??}}
case $path in "$(pwd -P)"/*) printf %s "$path"; exit 0;; esac
if [ -e "$path" ] && [ ! -f "$path" ] || [ ! -w "${{path%/*}}/" ]; then exec cat > "$path"; fi
new=${{path%/*}}/$2
cat > "$new"
code=$?
if [ "$code" = 0 ]; then
    if [ -e "$path" ]; then chmod --reference="$path" -- "$new"; fi
    mv -f -- "$new" "$path" && exit 0
fi
rm -f -- "$new"
[ "$code" -le 128 ] || kill -"$((code - 128))" $$
exit {EIO}
""".format_map(_EXIT)
# Seconds for one of these programs. Reading from and writing to a special file may block.
_PATIENCE = 60.0
# Larger than any path.
_PATH_BYTES = 1 << 14
_MAX_MESSAGE = 200


@contextmanager
def needed(module: str, extra: str, what: str, *packages: str) -> Iterator[None]:
    """Replaces a `ModuleNotFoundError` for one of `packages` in the block by one that names the extra to
    install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        message = f"{module} needs {what}: pip install 'sandfork[{extra}]'"
        raise ModuleNotFoundError(message, name=error.name) from error


def read_anywhere(sbx: AnySandbox, path: str, most: int) -> Work[bytes]:
    """Reads a file of a `Sandbox` or an `AsyncSandbox`. Raises `FileError` if it is missing, is not a regular
    file, or has more than `most` bytes."""
    copy = _own_name()
    result = yield from _run(sbx, _READ, path, str(most), copy)
    inside = _checked(result, path)
    if inside:
        return (yield from sbx.files._copied("open_read", inside, lambda file: file.read(most)))
    try:
        return (yield from sbx.files._copied("open_read", copy, lambda file: file.read(most)))
    finally:
        yield from sbx.files._requested("remove", copy, lambda _: None, recursive=False)


def write_anywhere(sbx: AnySandbox, path: str, data: bytes) -> Work[None]:
    """Writes a file of a sandbox, and creates its directory. Raises `FileError` on failure."""
    result = yield from _run(sbx, _WRITE, path, _own_name(), stdin=data)
    inside = _checked(result, path)
    if inside:
        yield from sbx.files._written(inside, data)


def _own_name() -> str:
    return f".sandfork-{os.urandom(8).hex()}"


def _run(sbx: AnySandbox, script: str, *arguments: str, stdin: bytes | None = None) -> Work[CommandResult]:
    if "\0" in arguments[0]:
        raise from_errno(errno.EINVAL, "the path has a NUL", arguments[0])
    argv = ["/bin/sh", "-c", script, "sh", *arguments]
    running = sbx.commands._run(argv, False, stdin=stdin, timeout=_PATIENCE, output=_PATH_BYTES)
    result: CommandResult = yield from running
    return result


def _checked(result: CommandResult, path: str) -> str:
    """Returns the program's output. Converts a failure's exit status to a `FileError`."""
    if result.ok:
        return result.stdout
    if result.status == "lost":
        raise SystemFailure(f"the program that looks at {path!r} was lost: {result.why}")
    if result.signal == signal.SIGXFSZ:
        message = f"{os.strerror(errno.EFBIG)}: limits.file_size of the policy is all that it may have"
        raise from_errno(errno.EFBIG, message, path)
    code = result.exit_code or 0
    number = code - _ERRNO if code in _EXIT.values() else errno.EIO
    raise from_errno(number, result.stderr.strip()[:_MAX_MESSAGE], path)


def builtin_error(error: FileError) -> OSError:
    """Returns the exception that `open` would raise, such as `PermissionError`."""
    return OSError(error.errno, error.strerror, error.filename)

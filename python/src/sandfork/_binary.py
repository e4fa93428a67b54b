"""Finds the `sandfork` executable."""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
import stat
import sys
import sysconfig
from collections.abc import Iterator

from ._exceptions import BinaryNotFound

_NAME = "sandfork"
VARIABLE = "SANDFORK_BINARY"
# The package directory of `pip install --prefix`: DIRECTORY/lib/python3.x/site-packages.
_PREFIXED = re.compile(r"(.*)/lib(?:64)?/python3[.0-9]*t?/(?:site|dist)-packages")


def find() -> str:
    """Returns the path of the executable: SANDFORK_BINARY, the one installed with this package, or the one on
    PATH.

    The installed executable is used only if no user other than root and this one can have put it there.
    Raises `BinaryNotFound`.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if _is_program(named):
            return os.path.abspath(named)
        raise BinaryNotFound(f"{VARIABLE} is {named!r}, which is no file that can be executed")
    refused = ""
    for candidate in _installed():
        if _is_program(candidate):
            fault = _fault(candidate)
            if fault is None:
                return candidate
            refused = f" ({candidate} is not used, because {fault})"
    on_path = shutil.which(_NAME)
    if on_path is not None:
        return os.path.abspath(on_path)
    raise BinaryNotFound(
        f"the `{_NAME}` program was not found{refused}: `pip install --force-reinstall {_NAME}` brings it "
        f"with the package, and {VARIABLE} names one that is elsewhere"
    )


def _installed() -> Iterator[str]:
    """Yields the paths at which an installer may have put the executable, next to this package
    first."""
    package = os.path.dirname(os.path.abspath(__file__))
    above = os.path.dirname(package)
    # `pip install --target DIRECTORY` and `--prefix DIRECTORY`.
    yield os.path.join(above, "bin", _NAME)
    prefixed = _PREFIXED.fullmatch(above)
    if prefixed is not None:
        yield os.path.join(prefixed[1] or "/", "bin", _NAME)
    yield os.path.join(sysconfig.get_path("scripts"), _NAME)
    # `pip install --user`.
    user = sysconfig.get_preferred_scheme("user") if sys.version_info >= (3, 10) else "posix_user"
    yield os.path.join(sysconfig.get_path("scripts", user), _NAME)
    # Next to the interpreter, if a virtual environment was copied or renamed.
    yield os.path.join(os.path.dirname(sys.executable or ""), _NAME)


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _fault(program: str) -> str | None:
    """Describes the component of the path through which another user could have replaced the executable;
    `None` if there is none."""
    for path in (program, os.path.realpath(program)):
        while True:
            found = os.stat(path)
            if found.st_uid not in (0, os.geteuid()):
                return f"{path} belongs to user {found.st_uid}"
            # In a sticky directory such as /tmp, users cannot replace files that they do not own.
            shared = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
            by_others = found.st_mode & stat.S_IWOTH
            by_group = found.st_mode & stat.S_IWGRP and not _is_own(found.st_gid)
            if not shared and (by_others or by_group):
                return f"other users may write to {path}"
            if path == os.path.dirname(path):
                break
            path = os.path.dirname(path)
    return None


def _is_own(group: int) -> bool:
    """Returns whether the group is root's, or a private group with this user as its only member."""
    if group == 0:
        return True
    try:
        user, found = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == user and not {*found.gr_mem} - {user}

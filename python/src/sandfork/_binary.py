"""Finds the `sandfork` program."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator

from ._exceptions import BinaryNotFound

_NAME = "sandfork"
VARIABLE = "SANDFORK_BINARY"


def find() -> str:
    """Its path: what SANDFORK_BINARY says, what was installed with this package, what PATH has."""
    told = os.environ.get(VARIABLE)
    if told:
        if _is_program(told):
            return os.path.abspath(told)
        raise BinaryNotFound(f"{VARIABLE} is {told!r}, which is no file that can be executed")
    for candidate in _installed():
        if _is_program(candidate):
            return candidate
    on_path = shutil.which(_NAME)
    if on_path is not None:
        return os.path.abspath(on_path)
    raise BinaryNotFound(
        f"the `{_NAME}` program was not found: `pip install --force-reinstall {_NAME}` brings it with "
        f"the package, and {VARIABLE} names one that is elsewhere"
    )


def _installed() -> Iterator[str]:
    """Where an installer may have put it, beginning with what belongs to this very package."""
    package = os.path.dirname(os.path.abspath(__file__))
    above = os.path.dirname(package)
    # `pip install --target DIRECTORY` and `--prefix DIRECTORY` (lib/python3.x/site-packages).
    yield os.path.join(above, "bin", _NAME)
    yield os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(above))), "bin", _NAME)
    yield os.path.join(sysconfig.get_path("scripts"), _NAME)
    # `pip install --user`.
    yield os.path.join(sysconfig.get_path("scripts", _user_scheme()), _NAME)
    # Beside the interpreter, where a virtual environment was copied or renamed.
    yield os.path.join(os.path.dirname(sys.executable or ""), _NAME)


def _user_scheme() -> str:
    if sys.version_info >= (3, 10):
        return sysconfig.get_preferred_scheme("user")
    return "posix_user"


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)

"""The bounds of values, and what is said of those that do not fit or cannot cross."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Bytes of buffers, in all, over which a file is passed instead of a payload.
SHARED = 64 * 1024
# Characters of a string in a tree; a longer one is a buffer.
MAX_TEXT = 32 * 1024
# Characters of the text that stands for what cannot cross, and of a name.
MAX_REPR = 16 * 1024
MAX_NAME = 256
# Hexadecimal digits of an integer: a million bits.
MAX_DIGITS = 256 * 1024
# Of one message. A `json` buffer may hold this many values, which is a bound on the memory that
# its reader needs.
MAX_VALUES = 1 << 22
MAX_BUFFERS = 1 << 14
# Bytes of a `json` buffer.
MAX_JSON = 64 << 20
# JSON inside JSON where a reader ends, and where a container may still begin: room is left for the
# message around a tree, and for a table, which is seven deep by itself.
MAX_DEPTH = 96
DEEPEST = 80
# What the trees of one message may hold in its header, which ends at 65,536 values and 2 MiB: a
# character may take six bytes there, and a buffer's length is a value too.
HEADER_VALUES = 24 * 1024
HEADER_TEXT = 192 * 1024
# Elements from which a list of numbers is packed.
PACKED = 256
I64 = 1 << 63
_MODULE_OF = type.__dict__["__module__"].__get__
_NAME_OF = type.__dict__["__qualname__"].__get__


class Opaque:
    """What could not cross: the name of its class, and its text."""

    __slots__ = ("name", "repr")

    def __init__(self, name: str, repr: str) -> None:
        self.name = name
        self.repr = repr

    def __repr__(self) -> str:
        return self.repr

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opaque):
            return NotImplemented
        return (self.name, self.repr) == (other.name, other.repr)

    def __hash__(self) -> int:
        return hash((self.name, self.repr))


class TooLarge(Exception):
    """A value is over the bounds of a message."""


def class_path(kind: type) -> tuple[str, str]:
    """Where a class says to be from, and its name: its own, whatever its metaclass would say."""
    module, name = _MODULE_OF(kind), _NAME_OF(kind)
    return module if type(module) is str else "", name


def class_name(value: object) -> str:
    module, name = class_path(type(value))
    return cut(name if module in ("builtins", "") else f"{module}.{name}", MAX_NAME)


def safe_repr(value: object) -> str:
    try:
        return str.__str__(repr(value))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"<{class_name(value)}, whose repr raises {class_name(error)}>"


def cut(text: str, limit: int) -> str:
    """What a header can hold: short, and without lone surrogates, which have no UTF-8."""
    if len(text) > limit:
        text = text[: limit // 2] + " ... " + text[-(limit // 2) :]
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def is_unicode(text: str) -> bool:
    """Whether it has UTF-8, which lone surrogates have not."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def library(name: str) -> Any:
    """A package that this side may not have, for values that are made by it; else `None`."""
    from importlib import import_module

    try:
        return import_module(name)
    except Exception:
        # Missing, or installed and broken.
        return None

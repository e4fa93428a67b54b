"""Defines the bounds of values, and placeholders for values that exceed them or cannot be transferred."""

from __future__ import annotations

from operator import eq

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# If the buffers are larger than this in total, a file is passed instead of a payload.
SHARED = 64 * 1024
# Maximum characters of a string in a tree. A longer string becomes a buffer.
MAX_TEXT = 32 * 1024
# Maximum characters of the `repr` of a value that cannot be transferred, and of a name.
MAX_REPR = 16 * 1024
MAX_NAME = 256
# Maximum hexadecimal digits of an integer: a million bits. Decimal conversion takes quadratic time, so Python
# limits it to 4,300 digits. Hexadecimal conversion of this many digits takes as long.
MAX_DIGITS = 256 * 1024
DECIMAL_DIGITS = 3571
# Maximum number of values in the `json` buffers of one message, and the budget for reading it. The unit is
# the cost of one value. This bounds the reader's memory and time.
MAX_VALUES = 1 << 22
MAX_BUFFERS = 1 << 14
# Maximum bytes of the `json` buffers of one message.
MAX_JSON = 64 << 20
# The nesting depth that a reader accepts, and the depth at which a container may still begin. The difference
# leaves room for the message around a tree, and for a table, which is seven levels deep.
MAX_DEPTH = 96
DEEPEST = 80
# Bounds of the trees in a message's header, which is limited to 65,536 values and 2 MiB. A character may take
# six bytes there, and the length of a buffer counts as a value.
HEADER_VALUES = 24 * 1024
HEADER_TEXT = 192 * 1024
# The minimum number of elements for a list of numbers to be packed.
PACKED = 256
# The budget for showing the library values of one message, to which each array, table and element adds. The
# unit is the cost of a character.
MAX_SHOWN = 64 * 1024
# The number of packed numbers whose reading costs as much as one value of a tree.
PACKED_UNIT = 16
I64 = 1 << 63
# Where this package runs, for messages about packages that are not installed.
HERE = "the sandbox" if __name__.startswith("sandfork_guest") else "the caller's Python"
# Control characters, which a terminal would interpret, in Python's notation.
_SHOWN = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
_SHOWN[ord("\r")] = "\\r"
_MODULE_OF = type.__dict__["__module__"].__get__
_NAME_OF = type.__dict__["__qualname__"].__get__


class Opaque:
    """A placeholder for a value that could not be transferred: the `name` of its class, and its `repr`."""

    __slots__ = ("name", "repr")

    def __init__(self, name: str, repr: str) -> None:
        self.name = name
        self.repr = repr

    def __repr__(self) -> str:
        return harmless(self.repr)

    def __getattr__(self, name: str) -> Any:
        message = f"'Opaque' object has no attribute {name!r}"
        # A copy under construction has neither name nor repr yet.
        if name[:2] != "__" and name not in self.__slots__:
            message += f": it stands for a {self.name} that was not transferred, {cut(self.repr, MAX_NAME)}"
        raise AttributeError(harmless(message))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Opaque):
            return NotImplemented
        return (self.name, self.repr) == (other.name, other.repr)

    def __hash__(self) -> int:
        return hash((self.name, self.repr))


class NotSupported(Exception):
    """The reason why a value cannot be transferred."""


class TooLarge(Exception):
    """A value exceeds the bounds of a message."""


def class_path(kind: type) -> tuple[str, str]:
    """Returns a class's own module and name, which its metaclass cannot override."""
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


def harmless(text: str) -> str:
    """Escapes control characters in Python's notation, because a terminal would interpret them. Keeps
    newlines and tabs, and converts CRLF to a newline."""
    return text.replace("\r\n", "\n").translate(_SHOWN)


def cut(text: str, limit: int) -> str:
    """Returns text that fits into a header: truncated, and without lone surrogates, which UTF-8 cannot
    encode."""
    if len(text) > limit:
        text = text[: limit // 2] + " ... " + text[-(limit // 2) :]
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def weight(key: Any) -> int:
    """Returns the maximum cost of comparing a key with another key of the same hash."""
    kind = type(key)
    if kind is int:
        # Comparing an integer with a `Decimal` takes time quadratic in its number of digits.
        bits: int = key.bit_length()
        return 1 + (bits >> 8) ** 2
    if kind is str or kind is bytes:
        return 1 + (len(key) >> 10)
    if kind is tuple or kind is frozenset:
        # Members with equal hashes are compared with each other too.
        hashes = sorted(map(hash, key)) if kind is frozenset else ()
        alike: int = 1 + sum(map(eq, hashes, hashes[1:]))
        return 1 + alike * sum(map(weight, key))
    parts = PARTS.get(kind.__name__, ())
    return 4 + sum(weight(getattr(key, part)) for part in parts)


# Key types whose comparison cost grows with their size.
PARTS = {
    "Fraction": ("numerator", "denominator"),
    "Opaque": ("name", "repr"),
    "range": ("start", "stop", "step"),
}


def is_unicode(text: str) -> bool:
    """Returns whether the text can be encoded as UTF-8, which excludes lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def library(name: str) -> Any:
    """Imports an optional package to create its values. Returns `None` if it is not available."""
    from importlib import import_module

    try:
        return import_module(name)
    except Exception:
        # The package is missing, or installed and broken.
        return None

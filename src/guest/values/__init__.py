"""Values as a typed tree of JSON, with their bytes in buffers beside it: docs/protocol.md has the
types. The guest and the Python client share this package."""

from __future__ import annotations

from .blob import layout, pieces, split
from .bounds import MAX_NAME, MAX_REPR, SHARED, Opaque, cut, is_unicode, safe_repr
from .decode import Decoder
from .encode import Encoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .blob import Buffer
    from .kinds import Tree

__all__ = [
    "MAX_NAME",
    "MAX_REPR",
    "SHARED",
    "Decoder",
    "Encoder",
    "Opaque",
    "cut",
    "decode",
    "encode",
    "is_unicode",
    "layout",
    "pieces",
    "safe_repr",
    "split",
]


def encode(value: object) -> tuple[Tree, list[Buffer]]:
    """The tree of a value, and the buffers that it refers to. For several values of one message:
    an `Encoder`."""
    encoder = Encoder()
    return encoder.encode(value), encoder.buffers


def decode(tree: Tree, buffers: Sequence[memoryview] = ()) -> Any:
    """The value of a tree. Raises `ValueError` for a malformed one. For several values of one
    message: a `Decoder`."""
    return Decoder(buffers).decode(tree)

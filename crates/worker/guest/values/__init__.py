"""Encodes values as a typed tree of JSON, with their bytes in separate buffers. docs/protocol.md documents
the types. The guest and the Python client share this package."""

from __future__ import annotations

from .blob import layout, pieces, split
from .bounds import (
    MAX_NAME,
    MAX_REPR,
    MAX_SHOWN,
    MAX_VALUES,
    SHARED,
    Opaque,
    class_name,
    cut,
    harmless,
    is_unicode,
    safe_repr,
)
from .decode import Decoder, check_json
from .encode import Encoder
from .table import Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .blob import Buffer
    from .kinds import Tree

__all__ = [
    "MAX_NAME",
    "MAX_REPR",
    "MAX_SHOWN",
    "MAX_VALUES",
    "SHARED",
    "Decoder",
    "Encoder",
    "Opaque",
    "Table",
    "check_json",
    "class_name",
    "cut",
    "decode",
    "encode",
    "harmless",
    "is_unicode",
    "layout",
    "pieces",
    "safe_repr",
    "split",
]


def encode(value: object) -> tuple[Tree, list[Buffer]]:
    """Returns the tree of a value and the buffers that it refers to. Use an `Encoder` for several values of
    one message."""
    encoder = Encoder()
    return encoder.encode(value), encoder.buffers


def decode(tree: Tree, buffers: Sequence[memoryview] = ()) -> Any:
    """Returns the value of a tree. Raises `ValueError` if it is malformed. Use a `Decoder` for several values
    of one message."""
    return Decoder(buffers).decode(tree)

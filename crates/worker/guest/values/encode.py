"""Encodes a value as a tree. Encoding never raises: a value or part that cannot be transferred is replaced by
its `repr`."""

from __future__ import annotations

from .blob import ALIGNMENT
from .bounds import (
    DEEPEST,
    HEADER_TEXT,
    HEADER_VALUES,
    I64,
    MAX_BUFFERS,
    MAX_JSON,
    MAX_NAME,
    MAX_REPR,
    MAX_TEXT,
    MAX_VALUES,
    NotSupported,
    Opaque,
    TooLarge,
    class_name,
    cut,
    is_unicode,
    safe_repr,
)
from .kinds import CONTAINERS, UNHASHABLE, encoder_of, is_exact, is_of_library

# Instead of importing `typing`, which would delay an interpreter that runs a single cell.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .blob import Buffer
    from .kinds import Encode, Tree


class Encoder:
    """Encodes the values of one message, which share buffers."""

    def __init__(self, max_bytes: int = I64) -> None:
        self.buffers: list[Buffer] = []
        # The end of the last buffer in the layout of a blob, and its maximum.
        self._end = 0
        self._max_bytes = max_bytes
        self._values = 0
        # More values rarely fit into `max_bytes` of JSON. Finding that out takes a second for each million.
        self._max_values = min(MAX_VALUES, max_bytes // 4)
        self._text = 0
        # The reader's work besides the header, and the JSON part of it.
        self._work = 0
        self._json_bytes = 0
        # The ids of the containers around the current value.
        self._around: set[int] = set()
        self.is_exact = True
        """Whether the decoded value has the `repr()` of the original. Includes values that are too large for
        a header."""

    def encode(self, value: object) -> Tree:
        before = self._values, self._text
        buffers = len(self.buffers), self._end
        try:
            tree = self.tree(value, 1, False)
            if self._values <= HEADER_VALUES and self._text <= HEADER_TEXT:
                return tree
            self.is_exact = True
            values = self._values - before[0]
            self._values, self._text = before
            return self.text(tree, 0) if type(tree) is str else self._json(tree, values)
        except TooLarge:
            why = "too large to transfer"
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # The value's own code is guarded, so this is a lack of memory or stack.
            why = f"not encoded: {class_name(error)}"
        self._values, self._text = before
        self.is_exact = True
        self._drop(*buffers)
        self._around.clear()
        name, encoder = class_name(value), encoder_of(type(value))
        if is_of_library(encoder) and why == "too large to transfer":
            # Library values abbreviate their `repr()`. Python's own containers would show everything.
            return self.opaque(Opaque(name, f"{safe_repr(value)}\n<not passed as a value: {why}>"))
        return {"type": "opaque", "name": name, "repr": f"<{name}, {why}>"}

    def tree(self, value: Any, depth: int, key: bool) -> Tree:
        """Returns the tree of a part. With `key` the decoded part must be hashable."""
        self.count(1)
        kind = type(value)
        if kind is int:
            if -I64 <= value < I64:
                return value
        elif kind is str:
            if len(value) <= 64 and value.isascii():
                self._text += len(value)
                return value
        elif value is None or kind is bool or (kind is float and value - value == 0):
            return value
        encoder = encoder_of(kind)
        if encoder is None or depth > DEEPEST or (key and encoder in UNHASHABLE):
            return self.opaque(value)
        if not is_exact(kind):
            self.is_exact = False
        if encoder not in CONTAINERS:
            return self._guarded(encoder, value, depth, key)
        if id(value) in self._around:
            return {"type": "opaque", "name": class_name(value), "repr": "..."}
        self._around.add(id(value))
        tree = self._guarded(encoder, value, depth, key)
        self._around.discard(id(value))
        return tree

    def _guarded(self, encoder: Encode, value: Any, depth: int, key: bool) -> Tree:
        before = len(self.buffers), self._end
        try:
            tree = encoder(self, value, depth, key)
        except (TooLarge, MemoryError, RecursionError, KeyboardInterrupt):
            raise
        except NotSupported as error:
            self._drop(*before)
            shown = Opaque(class_name(value), f"{safe_repr(value)}\n<not passed as a value: {error}>")
            return self.opaque(shown)
        except BaseException:
            # Code of the value's class may raise anything, and a library may reject the value.
            self._drop(*before)
            return self.opaque(value)
        if type(tree) is dict:
            self.count(2 * len(tree))
        return tree

    def count(self, values: int) -> None:
        """Counts JSON values, approximately."""
        self._values += values
        if self._values > self._max_values:
            raise TooLarge

    def spend(self, work: int) -> None:
        """Counts the reader's work, like the decoder."""
        self._work += work
        if self._work > MAX_VALUES:
            raise TooLarge

    def opaque(self, value: object) -> Tree:
        if type(value) is Opaque:
            name, text = value.name, value.repr
        else:
            name, text = class_name(value), safe_repr(value)
        name, text = cut(name, MAX_NAME), cut(text, MAX_REPR)
        self.count(6)
        self._text += len(name) + len(text)
        return {"type": "opaque", "name": name, "repr": text}

    def buffer(self, data: Buffer) -> int:
        """Adds a buffer and returns its number."""
        self._end = self.room_for(len(data))
        self.buffers.append(data)
        return len(self.buffers) - 1

    def room_for(self, length: int) -> int:
        """Returns the end of a further buffer of this length, or raises `TooLarge`. Must be called before its
        bytes are copied."""
        end = self._end + -self._end % ALIGNMENT + length
        if len(self.buffers) >= MAX_BUFFERS or end > self._max_bytes:
            raise TooLarge
        return end

    def _drop(self, count: int, end: int) -> None:
        """Drops all buffers but the first `count`, which end at `end`."""
        del self.buffers[count:]
        self._end = end

    def text(self, value: str, limit: int = MAX_TEXT) -> Tree:
        if len(value) <= limit and is_unicode(value):
            self._text += len(value)
            return value
        self.room_for(len(value))
        return {"type": "text", "buffer": self.buffer(value.encode("utf-8", "surrogatepass"))}

    def items(self, values: Iterable[Any], depth: int, key: bool) -> list[Tree]:
        self.count(1)
        return [self.tree(value, depth, key) for value in values]

    def pairs(self, pairs: Iterable[tuple[Any, Any]], depth: int) -> list[Tree]:
        self.count(1)
        trees = []
        for name, value in pairs:
            self.count(1)
            trees.append([self.tree(name, depth, True), self.tree(value, depth, False)])
        return trees

    def _json(self, tree: Tree, values: int) -> Tree:
        """Moves a tree that is too large for the header into a buffer."""
        import json

        data = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
        self._json_bytes += len(data)
        if self._json_bytes > MAX_JSON:
            raise TooLarge
        self.spend(values)
        return {"type": "json", "buffer": self.buffer(data)}

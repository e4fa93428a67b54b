"""The Rust side, which sends inputs and answers how it reads the same bytes. The messages are described in
`fuzz/targets/tests/fuzz/python.rs`."""

from __future__ import annotations

import struct
from typing import BinaryIO


class Rust:
    def __init__(self, read: BinaryIO, write: BinaryIO) -> None:
        self._read, self._write = read, write

    def frames(self, stream: bytes) -> tuple[bool, str]:
        """Whether all frames of the stream have objects as headers. Also returns their lengths, or the error."""
        return self._ask(b"f", stream)

    def value(self, tree: bytes, lengths: list[int]) -> tuple[bool, str]:
        """Whether the tree fits buffers of these lengths. Also returns its encoding by Rust, or the error."""
        listed = ",".join(map(str, lengths))
        return self._ask(b"v", b"%s\0[%s]" % (tree, listed.encode()))

    def send(self, kind: bytes, text: bytes) -> None:
        self._write.write(kind + struct.pack("<I", len(text)) + text)
        self._write.flush()

    def receive(self) -> tuple[bytes, bytes] | None:
        """The next message; `None` at the end."""
        prefix = self._read.read(5)
        if len(prefix) != 5:
            return None
        kind, length = struct.unpack("<cI", prefix)
        return kind, self._read.read(length)

    def _ask(self, kind: bytes, question: bytes) -> tuple[bool, str]:
        self.send(kind, question)
        verdict, text = self.receive()
        return verdict == b"+", text.decode()

"""The Rust side's reading of the same bytes: `fuzz-targets answer`, one question and answer at a time."""

from __future__ import annotations

import struct
import subprocess


class Rust:
    def __init__(self, program: str) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([program, "answer"], stdin=pipe, stdout=pipe)

    def __enter__(self) -> Rust:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()

    def frames(self, stream: bytes) -> tuple[bool, str]:
        """Whether the stream has frames with objects as headers. Also returns their lengths, or the error."""
        return self._ask(b"f", stream)

    def value(self, tree: bytes, lengths: list[int]) -> tuple[bool, str]:
        """Whether the tree fits buffers of these lengths. Also returns its encoding by Rust, or the error."""
        listed = ",".join(map(str, lengths))
        return self._ask(b"v", b"%s\0[%s]" % (tree, listed.encode()))

    def _ask(self, kind: bytes, question: bytes) -> tuple[bool, str]:
        self._process.stdin.write(kind + struct.pack("<I", len(question)) + question)
        self._process.stdin.flush()
        prefix = self._process.stdout.read(5)
        if len(prefix) != 5:
            raise AssertionError(f"the Rust side ended with {self._process.wait()}")
        verdict, length = struct.unpack("<cI", prefix)
        return verdict == b"+", self._process.stdout.read(length).decode()

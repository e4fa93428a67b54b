"""Makes inputs from other inputs, as a seed decides."""

from __future__ import annotations

import random
import re

LONGEST = 1 << 16
EDGES = (0, 1, 63, 64, 127, 255, 256, 65535, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)
# Strings, numbers, words; flat lists and tables.
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|\[[^\[\]]*\]|\{[^{}]*\}|-?[0-9][0-9.eE+-]*|[a-z]+')


class Mutator:
    def __init__(self, seed: int) -> None:
        # Gives the same numbers in every CPython.
        self._random = random.Random(seed)

    def pick(self, inputs: list[bytes]) -> bytes:
        return inputs[self._random.randrange(len(inputs))] if inputs else b""

    def mutate(self, data: bytes, other: bytes) -> bytes:
        for _ in range(self._random.choice((1, 1, 1, 2, 3, 6))):
            change = self._random.choice(self.CHANGES)
            data = change(self, data, other)[:LONGEST]
        return data

    def _part(self, data: bytes) -> tuple[int, int]:
        start = self._random.randint(0, len(data))
        length = self._random.randint(0, 1 << self._random.randrange(7))
        return start, min(len(data), start + length)

    def _flip(self, data: bytes, other: bytes) -> bytes:
        if not data:
            return b"\0"
        place = self._random.randrange(len(data))
        flipped = data[place] ^ 1 << self._random.randrange(8)
        return data[:place] + bytes([flipped]) + data[place + 1 :]

    def _remove(self, data: bytes, other: bytes) -> bytes:
        start, end = self._part(data)
        return data[:start] + data[end:]

    def _repeat(self, data: bytes, other: bytes) -> bytes:
        start, end = self._part(data)
        times = min(self._random.choice((1, 2, 9, 130, 1200)), LONGEST // max(1, end - start))
        return data[:end] + data[start:end] * times + data[end:]

    def _splice(self, data: bytes, other: bytes) -> bytes:
        return data[: self._part(data)[0]] + other[self._part(other)[0] :]

    def _edge(self, data: bytes, other: bytes) -> bytes:
        start, _ = self._part(data)
        number = (self._random.choice(EDGES) + self._random.choice((-1, 0, 0, 1))) % 2**64
        width = self._random.choice((1, 2, 4, 8))
        return data[:start] + number.to_bytes(8, "little")[:width] + data[start + width :]

    def _number(self, data: bytes, other: bytes) -> bytes:
        numbers = list(re.finditer(rb"-?[0-9]+", data))
        if not numbers:
            return self._flip(data, other)
        found = self._random.choice(numbers)
        number = self._random.choice(EDGES) * self._random.choice((1, -1))
        return data[: found.start()] + b"%d" % number + data[found.end() :]

    def _exchange(self, data: bytes, other: bytes) -> bytes:
        places = list(TOKEN.finditer(data))
        tokens = TOKEN.findall(self._random.choice((data, other)))
        if not places or not tokens:
            return self._flip(data, other)
        found = self._random.choice(places)
        return data[: found.start()] + self._random.choice(tokens) + data[found.end() :]

    CHANGES = (_flip, _remove, _repeat, _splice, _edge, _number, _exchange, _exchange, _exchange)

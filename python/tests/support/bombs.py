"""Trees that a guest may send to exhaust its host, and a naive host that reads them.

Run as a program: bombs.py (naive | ours) NAME. It exits with 0 if the host survived, having created a
value or refused it with a `ValueError`. Otherwise it ends as the host did.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
import resource
import sys
import time
from typing import Any, Callable

MEMORY = 1 << 30
# Processor time, in addition to the time used before. A naive host needs ten times more on a fast machine,
# and a safe reader needs ten times less on a slow one.
SECONDS = {"naive": 1, "ours": 15}
MIB = 1 << 20
# CPython's modulus for integers: those with the same remainder have the same hash.
MODULUS = (1 << 61) - 1

Tree = Any


def deep() -> tuple[Tree, list[bytes]]:
    return {"type": "json", "buffer": 0}, [b"[" * 200_000 + b"]" * 200_000]


def naive_deep(tree: Tree, buffers: list[bytes]) -> object:
    return json.loads(buffers[0])


def promising() -> tuple[Tree, list[bytes]]:
    return {"type": "ndarray", "dtype": "|u1", "shape": [1 << 20, 1 << 20], "buffer": 0}, [b"x"]


def naive_promising(tree: Tree, buffers: list[bytes]) -> object:
    rows, columns = tree["shape"]
    array = bytearray(rows * columns)
    array[: len(buffers[0])] = buffers[0]
    return array


def picture() -> tuple[Tree, list[bytes]]:
    return {"type": "image", "mode": "RGBA", "size": [1 << 16, 1 << 16], "buffer": 0}, [b"x"]


def naive_picture(tree: Tree, buffers: list[bytes]) -> object:
    width, height = tree["size"]
    return buffers[0].ljust(width * height * 4, b"\0")


def amplified() -> tuple[Tree, list[bytes]]:
    return [{"type": "bytes", "buffer": 0}] * 10_000, [bytes(MIB)]


def naive_amplified(tree: Tree, buffers: list[bytes]) -> object:
    return [bytearray(buffers[item["buffer"]]) for item in tree]


def colliding() -> tuple[Tree, list[bytes]]:
    keys = [{"type": "int", "hex": format(n * MODULUS, "x")} for n in range(1, 60_000)]
    return {"type": "set", "items": keys}, []


def naive_colliding(tree: Tree, buffers: list[bytes]) -> object:
    return {int(item["hex"], 16) for item in tree["items"]}


def endless() -> tuple[Tree, list[bytes]]:
    return {"type": "timedelta", "days": 1 << 60, "seconds": 0, "microseconds": 0}, []


def naive_endless(tree: Tree, buffers: list[bytes]) -> object:
    return datetime.timedelta(days=tree["days"])


def comparing() -> tuple[Tree, list[bytes]]:
    # Equal hashes: an integer and a decimal are compared digit by digit.
    large = {"type": "int", "hex": format((1 << 999_990) // MODULUS * MODULUS + 5, "x")}
    others = [{"type": "decimal", "text": str(5 + MODULUS * n)} for n in range(1, 500)]
    return {"type": "set", "items": [large, *others]}, []


def naive_comparing(tree: Tree, buffers: list[bytes]) -> object:
    large, *others = tree["items"]
    return {int(large["hex"], 16), *(decimal.Decimal(item["text"]) for item in others)}


def unclosed() -> tuple[Tree, list[bytes]]:
    return {"type": "json", "buffer": 0}, [b"[" + b"," * (5 << 20) + b'"' + b'\\"' * MIB]


def naive_unclosed(tree: Tree, buffers: list[bytes]) -> object:
    return re.sub(rb'"(?:[^"\\]|\\.)*"', b"", buffers[0]).count(b",")


def meeting() -> tuple[Tree, list[bytes]]:
    """Keys whose hashes differ and that meet in a dict's table all the same: half of it is filled along
    the path that a search takes at its end, and each key behind them comes to that path."""
    size = 1 << 17
    path, slot = [], 0
    for _ in range(size // 2 - 8):
        path.append(slot)
        slot = (5 * slot + 1) % size
    taken = bytearray(size)
    for slot in path:
        taken[slot] = 1
    keys, key = [], 1 << 36
    while len(keys) < size // 7:
        key += 1
        slot, rest = key % size, key
        while taken[slot] and rest:
            rest >>= 5
            slot = (5 * slot + rest + 1) % size
        if taken[slot]:
            keys.append(key)
    items = [[key, None] for key in path + keys]
    text = json.dumps({"type": "dict", "items": items}).encode()
    return [{"type": "json", "buffer": number} for number in range(6)], [text] * 6


def naive_meeting(tree: Tree, buffers: list[bytes]) -> object:
    return [dict(json.loads(buffer)["items"]) for buffer in buffers]


Bomb = Callable[[], "tuple[Tree, list[bytes]]"]
Naive = Callable[[Tree, "list[bytes]"], object]
BOMBS: dict[str, tuple[Bomb, Naive]] = {
    "deep": (deep, naive_deep),
    "promising": (promising, naive_promising),
    "picture": (picture, naive_picture),
    "amplified": (amplified, naive_amplified),
    "colliding": (colliding, naive_colliding),
    "endless": (endless, naive_endless),
    "comparing": (comparing, naive_comparing),
    "unclosed": (unclosed, naive_unclosed),
    "meeting": (meeting, naive_meeting),
}


def main(host: str, name: str) -> None:
    make, naive = BOMBS[name]
    tree, buffers = make()
    decode: Callable[[], object]
    if host == "naive":
        decode = lambda: naive(tree, buffers)  # noqa: E731
    else:
        from sandfork import _values

        decoder = _values.Decoder([memoryview(buffer) for buffer in buffers])
        decode = lambda: decoder.decode(tree)  # noqa: E731
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    limit = math.ceil(time.process_time()) + SECONDS[host]
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    try:
        decode()
    except ValueError as refused:
        print("refused:", refused)


if __name__ == "__main__":
    main(*sys.argv[1:])

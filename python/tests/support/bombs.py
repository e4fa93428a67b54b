"""Trees that a guest may send to bring its host down, and a naive host that reads them.

Run as a program: bombs.py (naive | ours) NAME. It ends with 0 where the host came through, having
made a value or refused to with a `ValueError`, and otherwise as the host did.
"""

from __future__ import annotations

import datetime
import json
import resource
import sys
import time
from typing import Any, Callable

# Far above what reading any of these safely takes; of processor time, beyond what was used before.
MEMORY = 1 << 30
SECONDS = 3
MIB = 1 << 20
# Of CPython's integers: those with the same remainder have the same hash.
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


Bomb = Callable[[], "tuple[Tree, list[bytes]]"]
Naive = Callable[[Tree, "list[bytes]"], object]
BOMBS: dict[str, tuple[Bomb, Naive]] = {
    "deep": (deep, naive_deep),
    "promising": (promising, naive_promising),
    "picture": (picture, naive_picture),
    "amplified": (amplified, naive_amplified),
    "colliding": (colliding, naive_colliding),
    "endless": (endless, naive_endless),
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
    limit = int(time.process_time()) + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    try:
        decode()
    except ValueError as refused:
        print("refused:", refused)


if __name__ == "__main__":
    main(*sys.argv[1:])

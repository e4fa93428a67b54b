"""How long a call takes, from Python, and how much of it is this package's own.

    SANDFORK_BINARY=target/release/sandfork PYTHONPATH=python/src python3 python/benches/latency.py

The row before the last is what the kernel takes for a cell's way alone: as many bytes over the same
kind of sockets, from this process by a second to a third and back, and none of the three does anything
with them. Each of the four wake-ups on that way costs more where the processors are asleep.

The last row is a cell against a supervisor that answers at once, with the same bytes each time, less a
bare exchange of as many bytes over the same kind of socket: what is left is spent in Python.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable
from unittest import mock

import sandfork
from sandfork import Sandbox, _link, _supervisor

# Seconds until a worker stands ready again.
READY = 0.008
ENFORCED = {"level": "full", "layers": ["namespaces", "mounts", "landlock", "seccomp", "rlimits", "cgroup"]}
POLICY = {"name": "standard", "sha256": "0" * 64}
USAGE = {"wall_ms": 0.1, "cpu_ms": 0.1, "peak_memory_bytes": 1, "peak_pids": 1, "output_bytes": 0}
OUTCOME = {"status": "ok", "exit_code": 0, "limit": None, "error": None, "denied": []}
# A cell as agents write them.
TEN_LINES = """\
import math

def scale(a, b):
    return [a * i + b for i in range(10)]

row = scale(2, 3)
for number in row:
    text = str(number) + f"{number:3d}"
found = {"row": row, "sum": sum(row), "root": math.sqrt(3)}
found["sum"] + len(found)
"""
# Bytes of the frames of a small cell, from hop to hop.
ASKED, REQUESTED, REPLIED, ANSWERED = 120, 71, 61, 300


def measure(call: Callable[[], object], times: int) -> list[float]:
    """Microseconds of each of so many calls, sorted; the first tenth is for warming up."""
    taken = []
    for _ in range(times + times // 10):
        began = time.perf_counter_ns()
        call()
        taken.append((time.perf_counter_ns() - began) / 1e3)
    return sorted(taken[times // 10 :])


def frame(header: dict[str, Any]) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<II", len(text), 0) + text


def echo(connected: socket.socket) -> None:
    """Opens a session, and answers each cell with the same outcome and the next number."""
    opened = {"kind": "opened", "version": 2, "enforced": ENFORCED, "policy": POLICY, "limits": {}}
    connected.recv(1 << 16)
    connected.sendall(frame(opened))
    told = {**OUTCOME, "usage": USAGE}
    header = {"kind": "outcome", "id": 10**9, "outcome": told, "session": "live", "execution_count": 1}
    before, after = frame(header).split(b"1000000000")
    number = 0
    while connected.recv(1 << 16):
        number += 1
        # Of the same length each time, which is in the frame's first bytes.
        connected.sendall(before + f"{number:>10}".encode() + after)


@contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """A connection to another process."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        serve(theirs)
        os._exit(0)
    theirs.close()
    yield ours
    ours.close()
    os.waitpid(child, 0)


def reply(connected: socket.socket, answer: bytes = bytes(ANSWERED)) -> None:
    while connected.recv(1 << 16):
        connected.sendall(answer)


def relay(connected: socket.socket) -> None:
    """Passes on what it is asked to another process, and back what that says."""
    with peer(lambda other: reply(other, bytes(REPLIED))) as other:
        while connected.recv(1 << 16):
            other.sendall(bytes(REQUESTED))
            other.recv(1 << 16)
            connected.sendall(bytes(ANSWERED))


def bare_way(times: int) -> list[float]:
    """Microseconds of a cell's way through three processes that do nothing else."""
    with peer(relay) as connected:

        def exchange() -> None:
            connected.send(bytes(ASKED))
            connected.recv(1 << 16)

        return measure(exchange, times)


def own_share(times: int) -> float:
    """Median of a cell less that of a bare exchange, microseconds."""
    with peer(echo) as connected:
        real, _supervisor.connect = (
            _supervisor.connect,
            lambda: _supervisor.Connection(connected.dup(), None),
        )
        try:
            with Sandbox() as sbx:
                cells = measure(lambda: sbx.run("x = 1"), times)
        finally:
            _supervisor.connect = real

    with peer(reply) as connected:

        def exchange() -> None:
            connected.send(bytes(ASKED))
            connected.recv(1 << 16)

        bare = measure(exchange, times)
    return statistics.median(cells) - statistics.median(bare)


@contextmanager
def waits() -> Iterator[list[float]]:
    """Microseconds of each time that a link waits for what it reads."""
    taken: list[float] = []
    real = _link.Link.read

    def read(link: _link.Link, flags: int = 0) -> bool:
        began = time.perf_counter_ns()
        there = real(link, flags)
        taken.append((time.perf_counter_ns() - began) / 1e3)
        return there

    with mock.patch.object(_link.Link, "read", read):
        yield taken


def creations(times: int) -> tuple[list[float], list[float], list[float]]:
    """Microseconds of making a sandbox for which a worker stands ready, of the part of that in which the
    supervisor is waited for, and of its first cell; each sorted."""
    made, waited, first = [], [], []
    for _ in range(times + times // 10):
        time.sleep(READY)
        with waits() as taken:
            began = time.perf_counter_ns()
            sbx = Sandbox()
            made.append((time.perf_counter_ns() - began) / 1e3)
        waited.append(sum(taken))
        began = time.perf_counter_ns()
        sbx.run("x = 1")
        first.append((time.perf_counter_ns() - began) / 1e3)
        sbx.close()
    warm = times // 10
    return sorted(made[warm:]), sorted(waited[warm:]), sorted(first[warm:])


def bare_opening(times: int) -> list[float]:
    """Microseconds of a message like the one that opens a session and an answer like its own, both JSON, with
    a process that does nothing else, and after as long a pause."""
    asked = {"kind": "open", "version": 2, "policy": {"name": "standard"}, "set": [], "environ": {}}
    told = frame({"kind": "opened", "version": 2, "enforced": ENFORCED, "policy": POLICY, "limits": {}})
    with peer(lambda connected: reply(connected, told)) as connected:

        def exchange() -> float:
            time.sleep(READY)
            began = time.perf_counter_ns()
            connected.send(json.dumps(asked).encode())
            json.loads(connected.recv(1 << 16)[8:])
            return (time.perf_counter_ns() - began) / 1e3

        return sorted([exchange() for _ in range(times + times // 10)][times // 10 :])


def rows() -> Iterator[tuple[str, list[float]]]:
    with Sandbox(tools={"add": lambda a, b: a + b}) as sbx:
        yield "a cell in a live session, `x = 1`", measure(lambda: sbx.run("x = 1"), 3000)
        yield "a cell of ten lines", measure(lambda: sbx.run(TEN_LINES), 3000)
        yield "a cell that calls a host tool", measure(lambda: sbx.run("add(1, 2)"), 2000)
        sbx.set(x=1)
        yield "`get` of an int", measure(lambda: sbx.get("x"), 2000)
    yield "a sandbox, made and closed", measure(lambda: Sandbox().close(), 300)
    yield "`run` in a fresh sandbox", measure(lambda: sandfork.run("pass"), 300)
    made, waited, first = creations(300)
    yield "a sandbox for which a worker stands ready", made
    yield "  of that, waiting for the supervisor", waited
    yield "  a bare exchange after as long a pause", bare_opening(300)
    yield "its first cell", first
    yield "the way of a cell alone", bare_way(3000)


def main() -> None:
    print(f"{'':44}{'p50 us':>10}{'p99 us':>10}")
    for name, taken in rows():
        print(f"{name:44}{statistics.median(taken):10.0f}{taken[len(taken) * 99 // 100]:10.0f}")
    print(f"{'of a cell, in this package':44}{own_share(5000):10.0f}")


if __name__ == "__main__":
    main()

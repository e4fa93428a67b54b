"""Programs that run inside a sandbox and outside of it, as cells and as a process.

`names()` lists them, and `run(name, loops)` runs one that many times and returns nanoseconds. Programs whose
names begin with `kernel:` mostly make system calls; the others compute. Those of pyperformance
are its own files, run with a stand-in for pyperf's runner, which would start processes of its own."""

import argparse
import collections
import json
import math
import os
import re
import sys
import time
import types

_clock = time.perf_counter_ns


class _Body:
    __slots__ = ("place", "pace", "mass")

    def __init__(self, place, pace, mass):
        self.place, self.pace, self.mass = place, pace, mass

    def pulled(self, others, step):
        for other in others:
            if other is not self:
                gap = other.place - self.place
                self.pace += step * other.mass * gap / (abs(gap) ** 3 + 0.01)


def _objects():
    """Methods, attributes, complex numbers."""
    bodies = [_Body(complex(i, i * i % 7), complex(0, 0.1 * i), 1.0 + i) for i in range(12)]
    for _ in range(20):
        for body in bodies:
            body.pulled(bodies, 0.01)
        for body in bodies:
            body.place += 0.01 * body.pace
    return sum(abs(body.place) for body in bodies)


def _numbers():
    """Floats and integers in nested loops."""
    total = 0
    for row in range(40):
        for column in range(40):
            x, y, count = column / 20 - 1.5, row / 20 - 1.0, 0
            a = b = 0.0
            while a * a + b * b < 4.0 and count < 30:
                a, b, count = a * a - b * b + x, 2.0 * a * b + y, count + 1
            total += count
    return total


_WORDS = ("the quick brown fox jumps over a lazy dog while nine wizards quietly vex it " * 40).split()


def _text():
    """Strings, a counter, a regular expression."""
    counted = collections.Counter(word.title() for word in _WORDS)
    joined = ", ".join(f"{word}={count:>4}" for word, count in sorted(counted.items()))
    return len(re.sub(r"(\w+)=\s*(\d+)", r"\2 \1", joined * 8).split(","))


def _tables():
    """Lists, dictionaries, tuples: frequent allocation and release."""
    rows = [{"id": i, "key": (i * 7919) % 1009, "tags": [str(i), str(i % 13)]} for i in range(1500)]
    groups = {}
    for row in rows:
        groups.setdefault(row["key"] % 97, []).append((row["key"], row["id"]))
    for group in groups.values():
        group.sort(reverse=True)
    return json.loads(json.dumps([groups[key][0] for key in sorted(groups)]))


def _queens(size=7):
    """Recursion and generators."""

    def place(row, columns, rising, falling):
        if row == size:
            yield columns
            return
        for column in range(size):
            if column not in columns and row + column not in rising and row - column not in falling:
                yield from place(row + 1, columns + (column,), rising | {row + column}, falling | {row - column})

    return sum(1 for _ in place(0, (), frozenset(), frozenset()))


def _primes():
    """Bytes and big integers."""
    sieve = bytearray([1]) * 20_000
    for number in range(2, math.isqrt(len(sieve)) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, len(sieve), number)))
    return math.prod(number for number in range(2, 2_000) if sieve[number]) % 1_000_003


def _getpid():
    for _ in range(10_000):
        os.getpid()


def _stat():
    for _ in range(10_000):
        os.stat("/dev/zero")


def _read():
    zero = os.open("/dev/zero", os.O_RDONLY)
    try:
        for _ in range(10_000):
            os.read(zero, 512)
    finally:
        os.close(zero)


def _open_close():
    for _ in range(3_000):
        os.close(os.open("/dev/zero", os.O_RDONLY))


def _memory():
    """Maps fresh pages, and returns them."""
    for _ in range(16):
        block = bytearray(4 << 20)
        block[:: 4096] = b"x" * len(block[:: 4096])


_PROGRAMS = {
    "objects": _objects,
    "numbers": _numbers,
    "text": _text,
    "tables": _tables,
    "queens": _queens,
    "primes": _primes,
    "kernel:getpid": _getpid,
    "kernel:stat": _stat,
    "kernel:read": _read,
    "kernel:open-close": _open_close,
    "kernel:fresh-memory": _memory,
}

# The programs of pyperformance that only compute and need only the standard library.
_OF_PYPERFORMANCE = [
    "chaos",
    "deepcopy",
    "deltablue",
    "fannkuch",
    "float",
    "go",
    "hexiom",
    "json_dumps",
    "nbody",
    "pidigits",
    "raytrace",
    "regex_compile",
    "richards",
    "spectral_norm",
]
_PREFIX = "pyperformance:"


class _Runner:
    """The part of `pyperf.Runner` that the programs use. It records the functions to measure."""

    def __init__(self, *_args, **_options):
        self.metadata = {}
        self.argparser = argparse.ArgumentParser()
        self.timed = []

    def parse_args(self):
        return self.argparser.parse_args([])

    def bench_func(self, _name, function, *args, **_options):
        def often(loops):
            start = _clock()
            for _ in range(loops):
                function(*args)
            return _clock() - start

        self.timed.append(often)

    def bench_time_func(self, _name, function, *args, **_options):
        self.timed.append(lambda loops: round(function(loops, *args) * 1e9))


def _pyperformance():
    """The directory of the programs, if they are installed."""
    try:
        import pyperformance
    except ImportError:
        return None
    return os.path.join(os.path.dirname(pyperformance.__file__), "data-files", "benchmarks")


def _loaded(name):
    """The functions that a program of pyperformance would measure."""
    path = os.path.join(_pyperformance(), f"bm_{name}", "run_benchmark.py")
    made = []

    def runner(*args, **options):
        made.append(_Runner(*args, **options))
        return made[-1]

    stand_in = types.ModuleType("pyperf")
    stand_in.Runner, stand_in.perf_counter = runner, time.perf_counter
    before = {key: sys.modules.get(key) for key in ("pyperf", "__main__")}
    main = types.ModuleType("__main__")
    main.__file__ = path
    sys.modules.update({"pyperf": stand_in, "__main__": main})
    sys.path.insert(0, os.path.dirname(path))
    try:
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read(), path, "exec"), main.__dict__)
    finally:
        sys.path.remove(os.path.dirname(path))
        for key, module in before.items():
            if module is None:
                del sys.modules[key]
            else:
                sys.modules[key] = module
    return made[0].timed


_ready = {}


def version():
    directory = _pyperformance()
    if directory is None:
        return "ours"
    import pyperformance

    return f"ours, and pyperformance {'.'.join(map(str, pyperformance.VERSION))}"


def names():
    there = _OF_PYPERFORMANCE if _pyperformance() else []
    return " ".join([*_PROGRAMS, *(_PREFIX + name for name in there)])


def run(name, loops):
    if name in _PROGRAMS:
        function = _PROGRAMS[name]
        start = _clock()
        for _ in range(loops):
            function()
        return _clock() - start
    if name not in _ready:
        _ready[name] = _loaded(name[len(_PREFIX) :])
    return sum(often(loops) for often in _ready[name])

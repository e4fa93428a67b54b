"""Fuzzes the Python readers of hostile bytes. `cargo xtask fuzz` runs this like the Rust targets, with the
same arguments after the path of the program that answers for the Rust side."""

from __future__ import annotations

import resource
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python" / "src"))

import client_frames  # noqa: E402
import python_values  # noqa: E402
from mutate import Mutator  # noqa: E402
from rust import Rust  # noqa: E402

TARGETS = {target.NAME: target for target in (client_frames, python_values)}
# The most that an input may take of either: an input that costs its reader more than its sender is a fault.
SECONDS = 30
MEMORY = 8 << 30
USAGE = """usage: python fuzz/python list
       python fuzz/python RUST run TARGET CORPUS ARTIFACTS SEED inputs|seconds NUMBER
       python fuzz/python RUST replay TARGET FILE..."""


def main(arguments: list[str]) -> str | None:
    if arguments == ["list"]:
        for target in TARGETS.values():
            print(target.NAME, target.INPUTS, target.CORPUS, target.ABOUT, sep="\t")
        return None
    if len(arguments) < 4 or arguments[2] not in TARGETS:
        return USAGE
    target = TARGETS[arguments[2]]
    with Rust(arguments[0]) as rust:
        check = target.Target(rust).check
        if arguments[1] == "replay":
            for name in arguments[3:]:
                print(f"{name}: {check(Path(name).read_bytes())}")
            return None
        if arguments[1] == "run" and len(arguments) == 8:
            corpus, artifacts, seed, unit, number = arguments[3:]
            return run(target, check, Path(corpus), Path(artifacts), int(seed), unit, int(number))
    return USAGE


def run(target, check, corpus, artifacts, seed, unit, number) -> str | None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    artifacts.mkdir(parents=True, exist_ok=True)
    last = artifacts / f"{target.NAME}-{seed:016x}"
    mutator = Mutator(seed)
    kept = [path.read_bytes() for path in sorted(corpus.iterdir())]
    pool, ways, made, taken = list(kept), set(), 0, 0
    end = time.monotonic() + number if unit == "seconds" else None

    def inputs():
        yield from kept
        while made < number if end is None else time.monotonic() < end:
            yield mutator.mutate(mutator.pick(pool), mutator.pick(pool))

    for turn, data in enumerate(inputs()):
        # Keeps the input if a crash ends the interpreter.
        last.write_bytes(data)
        # Counts processor time. The signal ends the process at any point.
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            way = check(data)
        except Exception as error:
            again = f"cargo xtask fuzz --replay {last} {target.NAME}"
            sys.excepthook(type(error), error, error.__traceback__)
            return f"{target.NAME} breaks on {last}: `{again}` does it again"
        taken += way[0] == "taken"
        if turn >= len(kept):
            made += 1
            if way not in ways and len(pool) < 4096:
                pool.append(data)
        ways.add(way)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    last.unlink()
    print(
        f"{len(kept)} kept inputs, {made} made with seed {seed}: {taken} taken, {len(ways)} ways to answer"
    )
    return None


sys.exit(main(sys.argv[1:]))

"""Judges many programs, for example candidate solutions of a model, each in its own sandbox.

    python examples/python/batch.py [--candidates 100] [--jobs 4]

A candidate is right if its tests pass, and wrong otherwise: an endless loop and a crash are wrong answers
too. No candidate is run a second time. A candidate has no verdict only if the host could not provide a
sandbox for it.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
from collections.abc import Iterator

import sandfork

TESTS = "assert [largest(xs) for xs in ([3, 1, 2], [-5], [2, 9, 9])] == [3, -5, 9]"
CANDIDATES = {
    "right": "def largest(xs): return max(xs)",
    "wrong": "def largest(xs): return xs[0]",
    "endless": "def largest(xs):\n    while True: pass",
    "crashes": "import ctypes\ndef largest(xs): return ctypes.string_at(0)",
}


def candidates(count: int) -> Iterator[sandfork.Task]:
    """Generates the candidates lazily: there may be millions."""
    choice = random.Random(7)
    # An endless candidate runs until its time limit, so a few are enough.
    kinds = choice.choices(list(CANDIDATES), weights=[57, 30, 5, 8], k=count)
    for number, kind in enumerate(kinds):
        code = f"{CANDIDATES[kind]}\n{TESTS}\n"
        yield sandfork.Task(code, id=(kind, number), limits={"wall": "1s"})


def show(progress: sandfork.Progress) -> None:
    if sys.stderr.isatty():
        print(f"\r{progress.done} judged, {progress.rate:.0f}/s", end="", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--jobs", type=int, help="how many at once; as many as processors without it")
    options = parser.parse_args()
    verdicts: collections.Counter[tuple[str, str]] = collections.Counter()
    with sandfork.map(candidates(options.candidates), jobs=options.jobs, on_progress=show) as results:
        for result in results:
            kind, _ = result.id
            verdicts[kind, result.status] += 1
    for (kind, status), count in sorted(verdicts.items()):
        print(f"{kind}: {status}, {count} times")


if __name__ == "__main__":
    main()

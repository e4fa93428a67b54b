"""Loads data once, tries several ideas on copies of the session, and continues with the best.

    python examples/python/branches.py
"""

from concurrent.futures import ThreadPoolExecutor

import sandfork

LOAD = """
import random
random.seed(7)
points = [(x, 3 * x * x - 2 * x + random.gauss(0, 40)) for x in range(-20, 21)]

def error_of(model):
    return sum((model(x) - y) ** 2 for x, y in points) / len(points)
"""

CANDIDATES = {
    "constant": "model = lambda x: 420",
    "line": "model = lambda x: 420 - 2 * x",
    "parabola": "model = lambda x: 3 * x * x - 2 * x",
    "cube": "model = lambda x: x ** 3",
    "mistake": "model = lambda x: undefined",
    "endless": "while True: pass",
    "leaving": "import os; os._exit(1)",
    "greedy": "model = [bytearray(1 << 20) for _ in range(1 << 20)]",
}


def best_of(snapshot, candidates, score):
    """Runs each candidate in a fork of its own. Returns the name and the sandbox of the best; the others are closed."""

    def attempt(candidate):
        sandbox = snapshot.fork()
        execution = sandbox.run(candidate, timeout=2)
        scored = sandbox.run(score, timeout=2) if execution.status == "ok" else execution
        return sandbox, scored

    with ThreadPoolExecutor(4) as pool:
        attempts = dict(zip(candidates, pool.map(attempt, candidates.values())))
    for name, (_, scored) in attempts.items():
        print(f"{name:9} {round(scored.value) if scored.status == 'ok' else scored.status}")
    best = min(
        (name for name, (_, scored) in attempts.items() if scored.status == "ok"),
        key=lambda name: attempts[name][1].value,
    )
    for name, (sandbox, _) in attempts.items():
        if name != best:
            sandbox.close()
    return best, attempts[best][0]


with sandfork.Sandbox(timeout=10) as sandbox:
    sandbox.run(LOAD)
    with sandbox.snapshot() as snapshot:
        name, winner = best_of(snapshot, CANDIDATES, "error_of(model)")

with winner:
    # The winner continues where it was: the data and its model are there.
    print(name, "at 100:", winner.run("model(100)").value)

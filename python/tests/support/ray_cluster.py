"""What batches on a Ray cluster do, as one JSON object in a file. A program of its own: Ray keeps threads,
and prints to the standard output of its driver.

    python -m tests.support.ray_cluster TASKS FILE
"""

from __future__ import annotations

import collections
import json
import pathlib
import sys
from collections.abc import Iterator

import ray
from ray.cluster_utils import Cluster

import sandfork.ray

MEMORY = 80 << 20


def outcome_of_a_lost_node(cluster: Cluster, count: int) -> dict[str, object]:
    """Runs tasks on three nodes, and kills one when a quarter has results."""
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=MEMORY) for _ in range(3)]
    tasks = ({"id": f"task {n}", "code": f"{n} * 2"} for n in range(count))
    results: collections.Counter[str] = collections.Counter()
    wrong = []
    for done, result in enumerate(sandfork.ray.map(tasks)):
        results[result.id] += 1
        if (result.id, result.value) != (f"task {result.index}", result.index * 2):
            wrong.append(repr(result))
        if done == count // 4:
            cluster.remove_node(nodes.pop(), allow_graceful=False)
    return {"tasks": len(results), "results": sum(results.values()), "wrong": wrong}


def taken_while_one_runs() -> int:
    """The number of tasks that are taken before the first result."""
    taken = 0

    def tasks() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "pass"

    results = sandfork.ray.map(tasks(), actors=1, jobs=1)
    next(results)
    results.close()
    return taken


def raised(*arguments: object, **options: object) -> list[str]:
    """The statuses before an exception, and the exception."""
    statuses = []
    try:
        statuses.extend(result.status for result in sandfork.ray.map(*arguments, **options))
    except sandfork.SandforkError as error:
        statuses.append(f"{type(error).__name__}: {error}")
    return statuses


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": MEMORY})
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    told: dict[str, object] = {"lost": outcome_of_a_lost_node(cluster, int(sys.argv[1]))}
    slow_first = ["import time; time.sleep(0.3)", *(str(n) for n in range(20))]
    told["ordered"] = [result.index for result in sandfork.ray.map(slow_first, ordered=True)]
    told["taken"] = taken_while_one_runs()
    told["ended"] = raised(["1", "1 / 0", "import sys; sys.exit(3)"], ordered=True)
    told["unknown key"] = raised(["1", {"nope": 1}])
    told["unknown key behind many"] = raised([*["1"] * 60, {"nope": 1}, *["1"] * 60], ordered=True)
    told["unknown policy"] = raised(["1"], policy="nope")
    told["too many jobs"] = raised(["1"], jobs=99)
    pathlib.Path(sys.argv[2]).write_text(json.dumps(told))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()

"""`sandfork.ray` on a cluster of several raylets of this machine, one of which is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

if sys.version_info < (3, 11):
    pytest.skip("Ray is tested with Python 3.11 and later", allow_module_level=True)

import numpy

import sandfork.ray
from sandfork import Task
from sandfork._tasks import prepared

# A release runs this test with 20000 tasks.
TASKS = int(os.environ.get("SANDFORK_RAY_TASKS", "500"))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("ray") / "told.json"
    command = [sys.executable, "-m", "tests.support.ray_cluster", str(TASKS), str(file)]
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
    subprocess.run(command, env=environment, check=True)
    told: dict[str, Any] = json.loads(file.read_text())
    return told


def test_each_task_has_one_result_though_a_node_is_lost(told: dict[str, Any]) -> None:
    assert told["lost"] == {"tasks": TASKS, "results": TASKS, "wrong": []}


def test_ordered_results_keep_the_task_order(told: dict[str, Any]) -> None:
    assert told["ordered"] == list(range(21))


def test_tasks_are_taken_lazily(told: dict[str, Any]) -> None:
    assert told["taken"] <= 2


def test_guest_behaviour_is_reported_as_its_result(told: dict[str, Any]) -> None:
    assert told["ended"] == ["ok", "exception", "exit"]


def test_an_invalid_task_is_raised_after_the_results_before_it(told: dict[str, Any]) -> None:
    assert told["unknown key"] == ["ok", ANY]
    assert told["unknown key"][1].startswith("RequestError: task 1: unknown key `nope`")
    # Also the results of tasks that were sent to a node together with the invalid one.
    assert told["unknown key behind many"] == ["ok"] * 60 + [ANY]


def test_a_file_of_a_task_is_read_on_the_node() -> None:
    for task in Task(file="/none.py", id="own"), {"file": "/none.py", "id": "own", "args": ["a"]}:
        assert prepared(sandfork.ray._without_file(task), 0).id == "own"


def test_node_errors_are_raised_like_local_ones(told: dict[str, Any]) -> None:
    [error] = told["unknown policy"]
    assert error.startswith('PolicyError: policy: no built-in policy and no file is called "nope"')


def test_an_actor_that_no_node_can_hold_is_refused(told: dict[str, Any]) -> None:
    [error] = told["too many jobs"]
    assert error.startswith("RequestError: jobs is 99: the largest node of the Ray cluster has 1 processor")


def test_rows_of_a_dataset_are_tasks() -> None:
    runner = sandfork.ray.Runner(timeout=5)
    rows = {
        "code": numpy.array(["print(int(input()) * 2)", "1 / 0"], dtype=object),
        "stdin": numpy.array(["21", ""], dtype=object),
        "expect": numpy.array(["42", "0"], dtype=object),
        "id": numpy.array([7, 8]),
        "kept": numpy.array([1.5, 2.5]),
        "args": numpy.array([numpy.array(["a"]), numpy.array([], dtype=object)], dtype=object),
    }
    found = runner(rows)
    assert list(found["kept"]) == [1.5, 2.5]
    assert found["status"] == ["ok", "exception"]
    assert found["verdict"] == ["pass", "failed"]
    assert found["stdout"] == ["42\n", ""]
    assert [json.loads(text)["id"] for text in found["result"]] == [7, 8]
    # Arrow gives all rows of a column of dicts the same keys, and makes arrays of their lists.
    columns = {"expect": numpy.empty(2, dtype=object), "files": numpy.empty(2, dtype=object)}
    columns["expect"][:] = [
        {"stdout": "a", "value": None, "tolerance": None},
        {"stdout": None, "value": numpy.array([1, 2]), "tolerance": None},
    ]
    columns["files"][:] = [{"a": "a", "b": None}, {"a": None, "b": "b"}]
    code = "import os; names = os.listdir(); print(*names)\n[1, 2]"
    found = runner({"code": [code, code], **columns})
    assert (found["verdict"], found["stdout"]) == (["pass", "pass"], ["a\n", "b\n"])
    with pytest.raises(sandfork.RequestError, match=r"no column is a key of a task.*: there are cod, more"):
        runner({"cod": ["1"], "more": [2]})
    # Arrow takes no lone surrogate, which a guest may send.
    (result,) = runner({"code": ["'\\ud800'"]})["result"]
    assert result.isascii()
    assert json.loads(result)["value"] == "\ud800"
    # The supervisor is kept for the next batch of rows.
    assert runner({"code": ["print(1)"]})["stdout"] == ["1\n"]

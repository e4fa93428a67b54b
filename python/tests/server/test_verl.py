"""verl's own reward function, unmodified, against the server."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
import threading
import zipimport
from typing import Any

import pytest

from .support import Server

if sys.version_info < (3, 10):
    pytest.skip("verl needs Python 3.10", allow_module_level=True)


@pytest.fixture(scope="module")
def reward() -> Any:
    """`verl.utils.reward_score.sandbox_fusion`, from verl's wheel. verl itself needs a GPU's libraries."""
    told = os.environ.get("SANDFORK_TEST_DOWNLOADS")
    wheels = list(pathlib.Path(told).glob("verl-*.whl")) if told else []
    if not wheels:
        pytest.skip("SANDFORK_TEST_DOWNLOADS names no directory with verl's wheel")
    # It uses the name in its own imports only.
    name = "sandbox_fusion"
    spec = zipimport.zipimporter(f"{wheels[0]}/verl/utils/reward_score").find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = {
        name: module for name, module in sys.modules.items() if name.partition(".")[0] == "sandbox_fusion"
    }
    for known in before:
        del sys.modules[known]
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        for known in [known for known in sys.modules if known.partition(".")[0] == name]:
            del sys.modules[known]
        sys.modules.update(before)
    return module


def score(reward: Any, server: Server, completion: str, cases: dict[str, Any]) -> tuple[float, list[Any]]:
    turns = threading.Semaphore(4)
    found, details = reward.compute_score(
        f"{server.url}/run_code", turns, 512, completion, cases, continuous=True, timeout=5
    )
    return float(found), details


CASES = {"inputs": ["1\n", "2\n", "3\n", "4\n"], "outputs": ["2", "4", "6", "8"]}


def test_a_right_completion_scores_one(reward: Any, server: Server) -> None:
    found, details = score(reward, server, "```python\nprint(int(input()) * 2)\n```", CASES)
    assert found == 1.0, details
    assert {case["status"] for case in details} == {"success"}


def test_a_completion_scores_by_the_cases_that_pass(reward: Any, server: Server) -> None:
    found, details = score(reward, server, "```python\nprint(min(int(input()) * 2, 4))\n```", CASES)
    assert found == 0.5, details


def test_failures_have_distinct_errors(reward: Any, server: Server) -> None:
    code = "n = int(input())\nif n == 1:\n    1 / 0\nwhile n == 2:\n    pass\nprint(n)"
    _, details = score(reward, server, f"```python\n{code}\n```", CASES)
    assert [case["status"] for case in details] == [
        "runtime_error",
        "timeout",
        "wrong_answer",
        "wrong_answer",
    ]


def test_a_function_is_called_with_its_arguments(reward: Any, server: Server) -> None:
    code = "```python\ndef add(a, b):\n    return a + b\n```"
    cases = {"fn_name": "add", "inputs": ["1\n2", "3\n4"], "outputs": ["3", "7"]}
    found, details = score(reward, server, code, cases)
    assert found == 1.0, details

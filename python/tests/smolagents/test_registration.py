"""`executor_type="native"`, and smolagents' handling of an agent that uses it."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from smolagents import CodeAgent, InferenceClientModel, LocalPythonExecutor, Model, ToolCallingAgent

import sandfork.smolagents
from sandfork.smolagents import NativeExecutor

from .support import code_agent


def test_by_its_type() -> None:
    options = {"timeout_seconds": 5, "policy": {"limits": {"memory": "256MiB"}}}
    with code_agent(
        "final_answer(1)",
        executor_kwargs=options,
        additional_authorized_imports=["json"],
        max_print_outputs_length=123,
    ) as agent:
        executor = agent.python_executor
        assert isinstance(executor, NativeExecutor)
        assert executor.logger is agent.logger
        assert "json" in executor.authorized_imports
        assert executor.max_print_outputs_length == 123
        assert executor.sandbox.info.limits["limits.wall"] == 5
        assert executor.sandbox.info.limits["limits.memory"] == 256 * 1024 * 1024
        assert agent.run("?") == 1


def test_options_override_the_agents_settings() -> None:
    with code_agent(max_print_outputs_length=1, executor_kwargs={"max_print_outputs_length": 2}) as agent:
        assert agent.python_executor.max_print_outputs_length == 2


def test_by_an_executor() -> None:
    executor = NativeExecutor(["json"])
    agent = CodeAgent(tools=[], model=Model(), executor=executor)
    assert agent.python_executor is executor
    executor.cleanup()


def test_other_types_are_as_before() -> None:
    assert isinstance(CodeAgent(tools=[], model=Model()).python_executor, LocalPythonExecutor)
    with pytest.raises(ValueError, match=r"^Unsupported executor type: nativ$"):
        code_agent(executor_type="nativ")


def test_without_the_import_it_is_unknown() -> None:
    program = (
        "from smolagents import CodeAgent, Model\n"
        "try: CodeAgent(tools=[], model=Model(), executor_type='native')\n"
        "except ValueError as error: print(error)\n"
        "import sandfork.smolagents\n"
        "with CodeAgent(tools=[], model=Model(), executor_type='native') as agent:\n"
        "    print(type(agent.python_executor).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "Unsupported executor type: native\nNativeExecutor\n"


def test_registering_twice_changes_nothing() -> None:
    before = CodeAgent.create_python_executor, CodeAgent.to_dict, CodeAgent.save
    importlib.reload(sandfork.smolagents)
    assert before == (CodeAgent.create_python_executor, CodeAgent.to_dict, CodeAgent.save)


def test_entry_point_is_registered() -> None:
    """Calls as in the proposal for later releases: imports and logger by position, the rest by name."""
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    group = "smolagents.executors"
    declared = re.search(rf'\[project\.entry-points\."{re.escape(group)}"\]\nnative = "(.+)"', project)
    assert declared is not None
    entry_point = importlib.metadata.EntryPoint("native", declared[1], group)
    assert entry_point.load() is NativeExecutor
    executor = entry_point.load()(["json"], None, max_print_outputs_length=7)
    assert executor("import json; json.loads('5')").output == 5
    executor.cleanup()


def saved(**options: Any) -> CodeAgent:
    return CodeAgent(
        tools=[],
        model=InferenceClientModel(model_id="some/model", token="secret"),
        executor_type="native",
        executor_kwargs={"timeout_seconds": 7},
        additional_authorized_imports=["json"],
        max_print_outputs_length=99,
        **options,
    )


def check_restored(agent: CodeAgent) -> None:
    assert agent.executor_type == "native"
    assert agent.executor_kwargs == {"timeout_seconds": 7}
    assert isinstance(agent.python_executor, NativeExecutor)
    assert agent.python_executor.max_print_outputs_length == 99
    assert "json" in agent.python_executor.authorized_imports
    assert agent.python_executor("import json; 3").output == 3


def test_agent_survives_to_dict_and_from_dict() -> None:
    with saved() as agent:
        told = json.loads(json.dumps(agent.to_dict()))
    assert "sandfork[smolagents]" in told["requirements"]
    with CodeAgent.from_dict(told) as restored:
        check_restored(restored)
    with CodeAgent.from_dict(told, executor_type="local", executor_kwargs={}) as local:
        assert isinstance(local.python_executor, LocalPythonExecutor)
    plain = CodeAgent(tools=[], model=InferenceClientModel())
    assert "sandfork[smolagents]" not in plain.to_dict()["requirements"]


def test_agent_survives_saving_to_a_folder(tmp_path: Path) -> None:
    with saved(name="aide", description="Aids.") as aide:
        manager = ToolCallingAgent(tools=[], model=InferenceClientModel(), managed_agents=[aide])
        manager.save(tmp_path / "manager")
        aide.save(tmp_path / "aide")
    with CodeAgent.from_folder(tmp_path / "aide") as restored:
        check_restored(restored)
    with ToolCallingAgent.from_folder(tmp_path / "manager").managed_agents["aide"] as restored:
        check_restored(restored)


def test_the_program_of_a_saved_agent_knows_the_type(tmp_path: Path) -> None:
    with saved() as agent:
        agent.save(tmp_path / "saved")
    assert "sandfork[smolagents]" in (tmp_path / "saved/requirements.txt").read_text().split()
    # The saved program runs without its graphical interface, which it starts only as a script.
    program = (
        "import runpy, sys, types, smolagents\n"
        "smolagents.GradioUI = None\n"
        "made = runpy.run_path('app.py')['agent']\n"
        "print(type(made.python_executor).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path / "saved",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "NativeExecutor\n", done.stderr

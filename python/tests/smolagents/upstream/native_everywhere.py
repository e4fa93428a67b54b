"""A pytest plugin for smolagents' own tests. It replaces the executors that they create by `NativeExecutor`.

It also provides the fixtures that smolagents' source distribution lacks.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, Callable

import PIL.Image
import pytest
import smolagents
from smolagents import (
    EMPTY_PROMPT_TEMPLATES,
    Tool,
    agents,
    default_tools,
    local_python_executor,
    remote_executors,
)
from smolagents.monitoring import LogLevel

from sandfork.smolagents import NativeExecutor, PythonInterpreterTool

# Before the test modules import the names.
if os.environ.get("SANDFORK_UPSTREAM_BASELINE") is None:
    for module in (smolagents, agents, local_python_executor):
        module.LocalPythonExecutor = NativeExecutor
    for name in ("E2BExecutor", "DockerExecutor", "ModalExecutor"):
        setattr(remote_executors, name, NativeExecutor)
    default_tools.PythonInterpreterTool = PythonInterpreterTool


@pytest.fixture(autouse=True)
def quiet_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables agents' logging by default, as in smolagents' own setup."""
    original = agents.MultiStepAgent.__init__

    @functools.wraps(original)
    def quiet(self: agents.MultiStepAgent, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **{"verbosity_level": LogLevel.OFF, **kwargs})

    monkeypatch.setattr(agents.MultiStepAgent, "__init__", quiet)


@pytest.fixture
def test_tool() -> Tool:
    class EchoTool(Tool):
        name = "test_tool"
        description = "Says what it was given."
        inputs = {"input": {"type": "string", "description": "What to say."}}
        output_type = "string"

        def forward(self, input: str) -> str:
            if input == "error":
                raise ValueError("it was asked to fail")
            return f"Processed: {input}"

    return EchoTool()


@pytest.fixture
def shared_datadir(tmp_path: Path) -> Path:
    """A directory with an image of the name that the tests expect."""
    PIL.Image.new("RGB", (64, 48), "teal").save(tmp_path / "000000039769.png")
    return tmp_path


@pytest.fixture
def get_agent_dict() -> Callable[[str], dict[str, Any]]:
    """A saved agent of a release. Releases differ only in parts that no test checks."""

    def saved(_release: str) -> dict[str, Any]:
        return {
            "tools": [],
            "model": {
                "class": "InferenceClientModel",
                "data": {"model_id": "Qwen/Qwen2.5-Coder-32B-Instruct"},
            },
            "managed_agents": {},
            "prompt_templates": {**EMPTY_PROMPT_TEMPLATES, "system_prompt": "dummy system prompt"},
            "max_steps": 10,
            "verbosity_level": 2,
            "planning_interval": 2,
            "name": "test_agent",
            "description": "dummy description",
            "requirements": ["smolagents"],
            "authorized_imports": ["pandas"],
        }

    return saved

"""A pytest plugin for smolagents' own tests: where they make an executor, a `NativeExecutor` is made.

It also has the fixtures that are not in smolagents' source distribution.
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
from smolagents.local_python_executor import MAX_EXECUTION_TIME_SECONDS
from smolagents.monitoring import AgentLogger, LogLevel

from sandfork.smolagents import NativeExecutor, PythonInterpreterTool

# Made by a test's name for it.
_IMPORTED_AS = {"pillow": "PIL"}


class InPlaceOfLocal(NativeExecutor):
    """With the constructor of `LocalPythonExecutor`."""

    def __init__(
        self,
        additional_authorized_imports: list[str],
        max_print_outputs_length: int | None = None,
        additional_functions: dict[str, Callable[..., Any]] | None = None,
        timeout_seconds: float | None = MAX_EXECUTION_TIME_SECONDS,
    ) -> None:
        super().__init__(
            additional_authorized_imports,
            max_print_outputs_length=max_print_outputs_length,
            additional_functions=additional_functions,
            timeout_seconds=timeout_seconds,
        )


class InPlaceOfRemote(NativeExecutor):
    """With the constructor of `E2BExecutor` and its like, which install packages and allow any import."""

    def __init__(self, additional_imports: list[str], logger: AgentLogger) -> None:
        names = [_IMPORTED_AS.get(name, name) for name in additional_imports]
        super().__init__([*names, "*"], logger)

    def delete(self) -> None:
        self.cleanup()


# Before the test modules import the names.
if os.environ.get("SANDFORK_UPSTREAM_BASELINE") is None:
    for module in (smolagents, agents, local_python_executor):
        module.LocalPythonExecutor = InPlaceOfLocal
    for name in ("E2BExecutor", "DockerExecutor", "ModalExecutor"):
        setattr(remote_executors, name, InPlaceOfRemote)
    default_tools.PythonInterpreterTool = PythonInterpreterTool


@pytest.fixture(autouse=True)
def quiet_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents log nothing unless a test says otherwise, as in smolagents' own set-up."""
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
    """With a picture under the name that the tests ask for."""
    PIL.Image.new("RGB", (64, 48), "teal").save(tmp_path / "000000039769.png")
    return tmp_path


@pytest.fixture
def get_agent_dict() -> Callable[[str], dict[str, Any]]:
    """A saved agent, by the release that saved it; they differ in what no test looks at."""

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

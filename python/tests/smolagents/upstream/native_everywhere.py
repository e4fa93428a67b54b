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
from smolagents.local_python_executor import MAX_EXECUTION_TIME_SECONDS
from smolagents.monitoring import AgentLogger, LogLevel

from sandfork.smolagents import NativeExecutor, PythonInterpreterTool

# Executors by the name that a test uses.
_IMPORTED_AS = {"pillow": "PIL"}


class InPlaceOfLocal(NativeExecutor):
    """A `NativeExecutor` with the constructor of `LocalPythonExecutor`."""

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
    """A `NativeExecutor` with the constructor of `E2BExecutor` and similar classes, which install packages
    and allow any import."""

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

from __future__ import annotations

from pathlib import Path

import pytest
from smolagents import Tool
from smolagents.default_tools import PythonInterpreterTool as LocalInterpreterTool
from smolagents.local_python_executor import ExecutionTimeoutError

from sandfork.smolagents import CodeError, PythonInterpreterTool


def test_it_has_the_schema_of_smolagents_tool() -> None:
    ours, theirs = PythonInterpreterTool(), LocalInterpreterTool()
    assert (ours.name, ours.output_type) == (theirs.name, theirs.output_type)
    assert ours.inputs.keys() == theirs.inputs.keys()
    assert ours.inputs["code"]["type"] == theirs.inputs["code"]["type"]
    assert "statistics" in ours.inputs["code"]["description"]


@pytest.mark.parametrize("code", ["print('a')\n2 * 3", "x = 5", "print('a')"])
def test_it_returns_the_same_as_smolagents_tool(code: str) -> None:
    assert PythonInterpreterTool()(code) == LocalInterpreterTool()(code)


def test_each_call_starts_from_nothing() -> None:
    interpreter = PythonInterpreterTool()
    interpreter("x = 1")
    with pytest.raises(CodeError, match="'x' is not defined"):
        interpreter("x")


def test_imports_and_time() -> None:
    interpreter = PythonInterpreterTool(authorized_imports=["json"], timeout_seconds=1)
    assert interpreter("import json; json.loads('1')") == "Stdout:\n\nOutput: 1"
    with pytest.raises(CodeError, match="Import of os is not allowed"):
        interpreter("import os")
    with pytest.raises(ExecutionTimeoutError) as stopped:
        interpreter("while True: pass")
    # There are no earlier steps.
    assert "is kept" not in str(stopped.value)


def test_it_runs_in_a_sandbox(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    interpreter = PythonInterpreterTool()
    with pytest.raises(CodeError, match="FileNotFoundError"):
        interpreter(f"open({str(tmp_path / 'secret')!r}).read()")


def test_saved_it_is_the_same_tool(tmp_path: Path) -> None:
    PythonInterpreterTool().save(tmp_path, tool_file_name="python_interpreter", make_gradio_app=False)
    restored = Tool.from_code((tmp_path / "python_interpreter.py").read_text())
    assert isinstance(restored, PythonInterpreterTool)
    assert restored("1 + 1") == "Stdout:\n\nOutput: 2"

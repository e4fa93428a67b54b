"""Registers `executor_type="native"` with smolagents 1.26, whose executor types are a fixed list.

A release that reads the entry points `smolagents.executors` finds this executor there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smolagents import CodeAgent
from smolagents.local_python_executor import PythonExecutor

from ._executor import NativeExecutor

EXECUTOR_TYPE = "native"
REQUIREMENT = "sandfork[smolagents]"
_IMPORT = "import sandfork.smolagents\n"
_MARK = "_of_sandfork"


def register() -> None:
    """Adds the type to `CodeAgent`. A second call changes nothing. Other types are unchanged."""
    if hasattr(CodeAgent.create_python_executor, _MARK):
        return
    replacements = {
        "create_python_executor": _creating(CodeAgent.create_python_executor),
        "to_dict": _telling(CodeAgent.to_dict),
        "save": _saving(CodeAgent.save),
    }
    for name, method in replacements.items():
        setattr(CodeAgent, name, method)


def _creating(original: Callable[[CodeAgent], PythonExecutor]) -> Callable[[CodeAgent], PythonExecutor]:
    @functools.wraps(original)
    def create_python_executor(self: CodeAgent) -> PythonExecutor:
        if self.executor_type != EXECUTOR_TYPE:
            return original(self)
        options = {"max_print_outputs_length": self.max_print_outputs_length, **self.executor_kwargs}
        return NativeExecutor(self.additional_authorized_imports, self.logger, **options)

    setattr(create_python_executor, _MARK, True)
    return create_python_executor


def _telling(original: Callable[[CodeAgent], dict[str, Any]]) -> Callable[[CodeAgent], dict[str, Any]]:
    @functools.wraps(original)
    def to_dict(self: CodeAgent) -> dict[str, Any]:
        told = original(self)
        if self.executor_type == EXECUTOR_TYPE:
            told["requirements"] = sorted({*told["requirements"], REQUIREMENT})
        return told

    return to_dict


def _saving(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def save(self: CodeAgent, output_dir: str | Path, relative_path: str | None = None) -> None:
        original(self, output_dir, relative_path)
        if self.executor_type == EXECUTOR_TYPE:
            # The saved program creates the agent with only smolagents imported.
            app = Path(output_dir, "app.py")
            app.write_text(_IMPORT + app.read_text(encoding="utf-8"), encoding="utf-8")

    return save

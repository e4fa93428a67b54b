"""Registers `executor_type="native"` with smolagents 1.26, whose executor types are a fixed list.

A release that reads the entry points `smolagents.executors` finds this executor there.
"""

from __future__ import annotations

import functools
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
    create, describe, save = CodeAgent.create_python_executor, CodeAgent.to_dict, CodeAgent.save
    if hasattr(create, _MARK):
        return

    @functools.wraps(create)
    def create_python_executor(self: CodeAgent) -> PythonExecutor:
        if self.executor_type != EXECUTOR_TYPE:
            return create(self)
        options = {"max_print_outputs_length": self.max_print_outputs_length, **self.executor_kwargs}
        return NativeExecutor(self.additional_authorized_imports, self.logger, **options)

    @functools.wraps(describe)
    def to_dict(self: CodeAgent) -> dict[str, Any]:
        described: dict[str, Any] = describe(self)
        if self.executor_type == EXECUTOR_TYPE:
            described["requirements"] = sorted({*described["requirements"], REQUIREMENT})
        return described

    @functools.wraps(save)
    def save_with_import(self: CodeAgent, output_dir: str | Path, relative_path: str | None = None) -> None:
        save(self, output_dir, relative_path)
        if self.executor_type == EXECUTOR_TYPE:
            # The saved program creates the agent with only smolagents imported.
            app = Path(output_dir, "app.py")
            app.write_text(_IMPORT + app.read_text(encoding="utf-8"), encoding="utf-8")

    setattr(create_python_executor, _MARK, True)
    CodeAgent.create_python_executor = create_python_executor
    CodeAgent.to_dict = to_dict
    CodeAgent.save = save_with_import

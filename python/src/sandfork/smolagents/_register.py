"""`executor_type="native"` for smolagents 1.26, whose executor types are a fixed list.

A release that looks for executors in the entry points `smolagents.executors` finds this one there.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, Optional, Union

from smolagents import CodeAgent
from smolagents.local_python_executor import PythonExecutor

from ._executor import NativeExecutor

EXECUTOR_TYPE = "native"
REQUIREMENT = "sandfork[smolagents]"
_IMPORT = "import sandfork.smolagents\n"
_MARK = "_of_sandfork"


def register() -> None:
    """Teaches `CodeAgent` the type. A second time changes nothing; other types are as before."""
    if not hasattr(CodeAgent.create_python_executor, _MARK):
        for wrap in (_wrap_create, _wrap_to_dict, _wrap_save):
            wrap()


def _wrap_create() -> None:
    original = CodeAgent.create_python_executor

    @functools.wraps(original)
    def create_python_executor(self: CodeAgent) -> PythonExecutor:
        if self.executor_type != EXECUTOR_TYPE:
            return original(self)
        options = {"max_print_outputs_length": self.max_print_outputs_length, **self.executor_kwargs}
        return NativeExecutor(self.additional_authorized_imports, self.logger, **options)

    setattr(create_python_executor, _MARK, True)
    CodeAgent.create_python_executor = create_python_executor


def _wrap_to_dict() -> None:
    original = CodeAgent.to_dict

    @functools.wraps(original)
    def to_dict(self: CodeAgent) -> dict[str, Any]:
        told = original(self)
        if self.executor_type == EXECUTOR_TYPE:
            told["requirements"] = sorted({*told["requirements"], REQUIREMENT})
        return told

    CodeAgent.to_dict = to_dict


def _wrap_save() -> None:
    original = CodeAgent.save

    @functools.wraps(original)
    def save(
        self: CodeAgent, output_dir: Union[str, Path], relative_path: Optional[str] = None
    ) -> None:
        original(self, output_dir, relative_path)
        if self.executor_type == EXECUTOR_TYPE:
            # The program that is saved makes the agent with nothing but smolagents imported.
            app = Path(os.path.join(output_dir, "app.py"))
            app.write_text(_IMPORT + app.read_text(encoding="utf-8"), encoding="utf-8")

    CodeAgent.save = save

"""smolagents' `python_interpreter` tool, executed in a sandbox."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from smolagents import Tool
from smolagents.local_python_executor import MAX_EXECUTION_TIME_SECONDS

from ._executor import NativeExecutor
from ._imports import authorized_imports as with_base_modules
from ._policy import PolicySource


class PythonInterpreterTool(Tool):
    """smolagents' `python_interpreter` for a `ToolCallingAgent`. Each call runs in its own sandbox.

    `authorized_imports` and `timeout_seconds` are as in smolagents; `policy` and `interpreter` are as in
    `NativeExecutor`.
    """

    name = "python_interpreter"
    description = "This tool evaluates python code. It can be used to perform calculations."
    inputs = {"code": {"type": "string", "description": "The python code to run in interpreter"}}
    output_type = "string"

    def __init__(
        self,
        *args: Any,
        authorized_imports: Iterable[str] | None = None,
        timeout_seconds: float | None = MAX_EXECUTION_TIME_SECONDS,
        policy: PolicySource = None,
        interpreter: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.authorized_imports = with_base_modules(authorized_imports or ())
        self.timeout_seconds = timeout_seconds
        about = (
            "The code to evaluate. It starts from nothing: what it uses must be defined in it. "
            f"It can import these modules only: {self.authorized_imports}."
        )
        self.inputs = {"code": {"type": "string", "description": about}}
        self._options: dict[str, Any] = {
            "timeout_seconds": timeout_seconds,
            "policy": policy,
            "interpreter": interpreter,
        }
        super().__init__(*args, **kwargs)

    def forward(self, code: str) -> str:
        executor = NativeExecutor(self.authorized_imports, **self._options)
        try:
            done = executor(code)
        finally:
            executor.cleanup()
        return f"Stdout:\n{done.logs}\nOutput: {done.output}"

    def to_dict(self) -> dict[str, Any]:
        """The saved form imports the tool from this package, because its source alone would not run."""
        return {
            "name": self.name,
            "code": f"from {__package__} import {type(self).__name__}\n",
            "requirements": ["sandfork[smolagents]", "smolagents"],
        }

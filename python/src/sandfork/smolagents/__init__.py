"""smolagents agents whose code runs in a sandbox, while their tools stay on the host.

    from smolagents import CodeAgent
    import sandfork.smolagents

    with CodeAgent(tools=[search], model=model, executor_type="native") as agent:
        agent.run("...")

Importing this module registers `executor_type="native"`. `executor=NativeExecutor(...)` does the same
without a name. `docs/smolagents.md` lists the differences from the other executors.
"""

from __future__ import annotations

try:
    import smolagents as _smolagents
except ModuleNotFoundError as error:
    if error.name != "smolagents":
        raise
    raise ModuleNotFoundError(
        "sandfork.smolagents needs smolagents: pip install 'sandfork[smolagents]'", name="smolagents"
    ) from error

from ._errors import CodeError, CodeTimeout
from ._executor import NativeExecutor
from ._interpreter_tool import PythonInterpreterTool
from ._register import register as _register
from ._whole_agent import lend_model

__all__ = ["CodeError", "CodeTimeout", "NativeExecutor", "PythonInterpreterTool", "lend_model"]

_register()
del _smolagents

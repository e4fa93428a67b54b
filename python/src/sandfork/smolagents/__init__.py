"""smolagents agents whose code runs in a sandbox, while their tools stay on the host.

    from smolagents import CodeAgent
    import sandfork.smolagents

    with CodeAgent(tools=[search], model=model, executor_type="native") as agent:
        agent.run("...")

Importing this module registers `executor_type="native"`. `executor=NativeExecutor(...)` does the same
without a name. `docs/smolagents.md` lists the differences from the other executors.
"""

from __future__ import annotations

from sandfork._frameworks import needed as _needed

with _needed(__name__, "smolagents", "smolagents", "smolagents"):
    import smolagents as _smolagents

from ._errors import CodeError, CodeTimeout
from ._executor import NativeExecutor
from ._interpreter_tool import PythonInterpreterTool
from ._register import register as _register
from ._whole_agent import lend_model

__all__ = ["CodeError", "CodeTimeout", "NativeExecutor", "PythonInterpreterTool", "lend_model"]

_register()
del _smolagents

"""The asyncio interface of a session."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from ._async_driver import AsyncDriver
from ._calls import Approve
from ._cells import Callbacks, OnResult, OnText
from ._execution import Execution
from ._files import AsyncFiles
from ._options import Options, PolicyLike, Stdin, checked_variables, read_source
from ._reports import SessionInfo
from ._sandbox import describe, info_of, one_run
from ._tools import Tools, check_name, collect


class AsyncSandbox:
    """The asyncio version of `Sandbox`, with the same arguments.

        async with AsyncSandbox(tools={"fetch": fetch}) as sbx:
            execution = await sbx.run("fetch('a')")

    `async with` or the first call opens it. Async tools are awaited in the caller's task; other tools run
    in a thread. Callbacks may be async. Cancelling the task that awaits a cell interrupts the cell. If the
    cell does not end within two seconds, it is ended together with its session.
    """

    def __init__(
        self,
        policy: PolicyLike = "standard",
        *,
        tools: Tools | None = None,
        timeout: float | None = None,
        variables: Mapping[str, Any] | None = None,
        tool_timeout: float | None = None,
        tool_budget: int | None = None,
        approve: Approve | None = None,
        tool_time: float | None = None,
        count_tool_time: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
        on_death: str = "raise",
    ) -> None:
        self._options = Options(
            policy,
            tools=tools,
            timeout=timeout,
            variables=variables,
            tool_timeout=tool_timeout,
            tool_budget=tool_budget,
            approve=approve,
            tool_time=tool_time,
            count_tool_time=count_tool_time,
            callbacks=Callbacks(on_stdout, on_stderr, on_result),
            on_death=on_death,
        )
        self._session = self._options.session
        self._driver = AsyncDriver(self._session)
        weakref.finalize(self, self._driver.resources.release)
        self.files = AsyncFiles(self._driver)
        """The files in the session's work directory."""

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        filename: str | None = None,
        last: str = "expression",
        variables: Mapping[str, Any] | None = None,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
    ) -> Execution:
        """Runs a cell; see `Sandbox.run`."""
        cell = self._options.cell(
            code,
            timeout=timeout,
            filename=filename,
            last=last,
            variables=variables,
            callbacks=Callbacks(on_stdout, on_stderr, on_result),
        )
        return await self._driver.perform(self._session.run(cell))

    async def run_file(
        self,
        path: str | os.PathLike[str],
        *,
        argv: Iterable[str] = (),
        timeout: float | None = None,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
    ) -> Execution:
        """Runs a whole file of the host as one cell. `argv` is its `sys.argv[1:]`."""
        cell = self._options.cell(
            read_source(path),
            timeout=timeout,
            filename=os.fspath(path),
            last="expression",
            variables=None,
            callbacks=Callbacks(on_stdout, on_stderr, on_result),
            argv=argv,
        )
        return await self._driver.perform(self._session.run(cell))

    async def set(self, **variables: Any) -> None:
        """Sets globals of the guest: `await sbx.set(x=1)`."""
        await self.set_variables(variables)

    async def set_variables(self, variables: Mapping[str, Any]) -> None:
        """Sets globals of the guest. A value that cannot be transferred becomes an `Opaque` in the guest."""
        await self._driver.perform(self._session.set_variables(checked_variables(variables)))

    async def get(self, name: str) -> Any:
        """The value of a global of the guest. Raises `UndefinedVariable` if it is not defined."""
        return await self._driver.perform(self._session.get(check_name(name, "a variable")))

    async def add_tools(self, tools: Tools) -> None:
        """Adds host tools. A tool replaces an existing one of the same name."""
        await self._driver.perform(self._session.add_tools(collect(tools)))

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in the running cell, if there is one. May be called from any thread."""
        self._driver.interrupt()

    async def restart(self) -> None:
        """Replaces the session with a fresh one. The policy, the tools and the initial variables are kept,
        nothing else."""
        await self._driver.perform(self._session.restart())

    async def close(self) -> None:
        """Ends the session and everything in it. May be called again."""
        self._driver.close()

    @property
    def info(self) -> SessionInfo:
        """The session's enforced layers, policy, interpreter and limits."""
        return info_of(self._session)

    async def __aenter__(self) -> AsyncSandbox:
        await self._driver.perform(self._session.opened())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return describe("AsyncSandbox", self._session, closed=self._driver.closed)


async def async_run(
    code: str,
    *,
    policy: PolicyLike = "standard",
    timeout: float | None = None,
    argv: Iterable[str] = (),
    stdin: Stdin | None = None,
    on_stdout: OnText | None = None,
    on_stderr: OnText | None = None,
) -> Execution:
    """The asyncio version of `run`."""
    session, cell = one_run(code, policy, timeout, argv, stdin, Callbacks(on_stdout, on_stderr))
    driver = AsyncDriver(session)
    try:
        return await driver.perform(session.once(cell))
    finally:
        driver.close()
        session.release()

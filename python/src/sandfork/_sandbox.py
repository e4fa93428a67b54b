"""The blocking interface of a session."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from ._calls import Approve, Calls
from ._cells import Callbacks, OnResult, OnText
from ._exceptions import RequestError
from ._execution import Execution
from ._files import Files
from ._options import (
    Options,
    PolicyLike,
    Stdin,
    checked_argv,
    checked_variables,
    policy_choice,
    read_source,
    source_of,
    stdin_descriptor,
)
from ._reports import SessionInfo
from ._session import Cell, Opening, Session
from ._sync_driver import SyncDriver
from ._tools import Tools, check_name, check_seconds, collect


class Sandbox:
    """A session: a sandboxed Python that keeps variables, imports and files from cell to cell.

        with Sandbox(tools={"add": add}, timeout=30) as sbx:
            sbx.run("x = add(1, 2)")
            assert sbx.run("x * 2").value == 6

    - `policy`: a built-in name (`standard`, `strict`, `data-science`), the path of a policy file, or a
      `Policy`.
    - `tools`: functions of this process that guest code may call by name. A tool runs in the thread that
      called `run`. A tool with a timeout runs in a helper thread, and an async tool in the sandbox's own
      event loop.
    - `timeout`: wall-clock seconds for each cell, instead of the policy's `limits.wall`.
    - `variables`: initial globals of the guest.
    - `tool_timeout`: seconds for each call of a tool.
    - `tool_budget`: number of tool calls in the sandbox's lifetime.
    - `approve(name, args, kwargs)`: decides on each tool call. `True` or `None` allows it; `False` or a
      reason refuses it.
    - `on_stdout`, `on_stderr`: called with text as the guest writes it.
    - `on_result`: called with a `Result` as the cell shows it.
    - `on_death`: what the next call does after the guest's process has ended (a limit, a crash). `"raise"`
      raises `SessionEnded`. `"restart"` starts a fresh session with the same tools and variables, and sets
      `Execution.restarted`.

    The time for which tools and `approve` keep a cell waiting does not count towards its `timeout`, unless
    `count_tool_time` is set. `tool_time` bounds this uncounted time, in seconds for each cell: otherwise a
    guest that always has a call open would never end. The default is ten times the `timeout`, or what
    `tool_timeout` allows for `tool_budget` calls (for ten calls without a budget) if that is more. Set
    `tool_time` to the time needed if a person approves calls, or if a tool is an agent.

    A sandbox serves one caller at a time. A second caller gets `SessionBusy` at once.
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
        self._driver = SyncDriver(self._session)
        weakref.finalize(self, self._driver.resources.release)
        self.files = Files(self._driver)
        """The files in the session's work directory."""
        self._driver.perform(self._session.open())

    def run(
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
        """Runs a cell. The returned `Execution` reports what the guest does; guest code never causes an
        exception here.

        - `timeout`: wall-clock seconds, instead of the sandbox's `timeout`.
        - `filename`: the file name in tracebacks.
        - `last`: `"expression"` gives the value of the last expression. `"statement"` also gives the value
          of a last statement that assigns: `x = 3` gives 3.
        - `variables`: globals to set before the cell runs.
        """
        callbacks = Callbacks(on_stdout, on_stderr, on_result)
        cell = self._options.cell(
            code,
            timeout=timeout,
            filename=filename,
            last=last,
            variables=variables,
            callbacks=callbacks,
        )
        return self._driver.perform(self._session.run(cell))

    def run_file(
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
        return self._driver.perform(self._session.run(cell))

    def set(self, **variables: Any) -> None:
        """Sets globals of the guest: `sbx.set(x=1)`."""
        self.set_variables(variables)

    def set_variables(self, variables: Mapping[str, Any]) -> None:
        """Sets globals of the guest. A value that cannot be transferred becomes an `Opaque` in the guest."""
        checked = checked_variables(variables)
        self._driver.perform(self._session.set_variables(checked))

    def get(self, name: str) -> Any:
        """The value of a global of the guest. Raises `UndefinedVariable` if it is not defined."""
        return self._driver.perform(self._session.get(check_name(name, "a variable")))

    def add_tools(self, tools: Tools) -> None:
        """Adds host tools. A tool replaces an existing one of the same name."""
        self._driver.perform(self._session.add_tools(collect(tools)))

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in the running cell, if there is one. May be called from any thread."""
        self._driver.interrupt()

    def restart(self) -> None:
        """Replaces the session with a fresh one. The policy, the tools and the initial variables are kept,
        nothing else."""
        self._driver.perform(self._session.restart())

    def close(self) -> None:
        """Ends the session and everything in it, without waiting. May be called again, and from any thread,
        signal handler or finalizer."""
        self._driver.close()

    @property
    def info(self) -> SessionInfo:
        """The session's enforced layers, policy, interpreter and limits."""
        return info_of(self._session)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return describe("Sandbox", self._session, closed=self._driver.closed)


def run(
    code: str,
    *,
    policy: PolicyLike = "standard",
    timeout: float | None = None,
    argv: Iterable[str] = (),
    stdin: Stdin | None = None,
    on_stdout: OnText | None = None,
    on_stderr: OnText | None = None,
) -> Execution:
    """Runs a program in a fresh sandbox, which is removed afterwards.

    - `timeout`: wall-clock seconds, instead of the policy's `limits.wall`.
    - `stdin`: the program's standard input: text, bytes or an open file.
    """
    session, cell = one_run(code, policy, timeout, argv, stdin, Callbacks(on_stdout, on_stderr))
    driver = SyncDriver(session)
    try:
        return driver.perform(session.once(cell))
    finally:
        driver.close()
        session.release()


def one_run(
    code: str,
    policy: PolicyLike,
    timeout: float | None,
    argv: Iterable[str],
    stdin: Stdin | None,
    callbacks: Callbacks,
) -> tuple[Session, Cell]:
    """A session for one cell, and the cell."""
    cell = Cell(
        source_of(code),
        filename="<string>",
        argv=checked_argv(argv),
        then="end",
        wall=check_seconds(timeout, "timeout"),
        callbacks=callbacks,
    )
    # The caller's input takes precedence over the policy's `stdio.stdin`.
    overrides = () if stdin is None else ("stdio.stdin=pass",)
    opening = Opening(
        policy_choice(policy),
        overrides=overrides,
        stdin=None if stdin is None else stdin_descriptor(stdin),
    )
    calls = Calls({}, timeout=None, budget=None, approve=None)
    return Session(opening, calls, revive=False), cell


def info_of(session: Session) -> SessionInfo:
    if session.info is None:
        raise RequestError("the session is not open yet: use `async with`, or run a cell first")
    return session.info


def describe(kind: str, session: Session, *, closed: bool) -> str:
    state = "closed" if closed else "ended" if session.ended is not None else "live"
    info = session.info
    policy = "" if info is None else f" policy={info.policy.name!r} level={info.enforced.level}"
    return f"<{kind} {state}{policy}>"

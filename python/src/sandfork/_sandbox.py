"""The blocking face of a session."""

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

    `policy` is a name (`standard`, `strict`, `data-science`), the path of a policy file, or a `Policy`.
    `tools` are functions of this process that guest code may call by name; they run in the thread that
    called `run`, or in a helper thread where they have a timeout, or in an event loop of the sandbox's
    own if they are async. `timeout` is for each cell, seconds on the clock, in place of the policy's
    `limits.wall`. `variables` are the guest's globals from the start. `tool_timeout` (seconds) is for
    each call of a tool, `tool_budget` for all calls in the sandbox's life, and
    `approve(name, args, kwargs)` decides on each: `True` or `None` lets it through, `False` or a reason
    does not. The time that tools take counts towards `timeout` only with `count_tool_time`.

    `on_stdout` and `on_stderr` get text and `on_result` gets a `Result`, as they come. When the guest's
    process ends (a limit, a crash), `on_death` says what the next call does: `"raise"` raises
    `SessionEnded`, `"restart"` starts a fresh session with the same tools and variables, and says so in
    `Execution.restarted`.

    One caller at a time: a second one gets `SessionBusy`, at once.
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
            count_tool_time=count_tool_time,
            callbacks=Callbacks(on_stdout, on_stderr, on_result),
            on_death=on_death,
        )
        self._session = self._options.session
        self._driver = SyncDriver(self._session)
        weakref.finalize(self, self._driver.resources.release)
        self.files = Files(self._driver)
        """The files beneath the session's work directory."""
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
        """Runs a cell. Whatever the guest does is told by what is returned, never raised.

        `filename` is the name in tracebacks. With `last="statement"` the value is that of the last
        statement also where it assigns: `x = 3` gives 3. `variables` are set before the cell runs.
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
        """Runs a program of the host's, a whole file, as a cell. `argv` is its `sys.argv[1:]`."""
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
        """Defines globals of the guest: `sbx.set(x=1)`."""
        self.set_variables(variables)

    def set_variables(self, variables: Mapping[str, Any]) -> None:
        """Defines globals of the guest. What cannot cross becomes an `Opaque` there."""
        checked = checked_variables(variables)
        self._driver.perform(self._session.set_variables(checked))

    def get(self, name: str) -> Any:
        """The value of a global of the guest. Raises `UndefinedVariable` where there is none."""
        return self._driver.perform(self._session.get(check_name(name, "a variable")))

    def add_tools(self, tools: Tools) -> None:
        """Defines more host tools, or others in place of those with the same names."""
        self._driver.perform(self._session.add_tools(collect(tools)))

    def interrupt(self) -> None:
        """From any thread: raises `KeyboardInterrupt` in the cell that runs, if one does."""
        self._driver.interrupt()

    def restart(self) -> None:
        """A fresh session in place of this one: same policy, tools and first variables, nothing else."""
        self._driver.perform(self._session.restart())

    def close(self) -> None:
        """From any thread: ends the session, and everything in it. May be called again."""
        self._driver.close()

    @property
    def info(self) -> SessionInfo:
        """What the session stands on: what holds it, its policy, interpreter and limits."""
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
    """Runs a program in a fresh sandbox of its own, of which nothing is left afterwards.

    `timeout` is in seconds on the clock, in place of the policy's `limits.wall`; `stdin` what it reads
    on its standard input: text, bytes or an open file.
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
    """A session of one cell, and the cell."""
    cell = Cell(
        source_of(code),
        filename="<string>",
        argv=checked_argv(argv),
        then="end",
        wall=check_seconds(timeout, "timeout"),
        callbacks=callbacks,
    )
    # What the caller passes is what the guest is to read, whatever the policy says of others.
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

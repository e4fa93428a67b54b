"""The sandbox: the common part of both interfaces, and the blocking interface."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

from ._calls import Approve, Calls, OnConnect
from ._commands import Commands
from ._conversation import Callbacks, OnResult, OnText
from ._driver import Driver, SyncDriver, Work
from ._environment import Environment, installation_cell
from ._exceptions import RequestError
from ._execution import Execution
from ._files import Files, Path
from ._options import (
    PolicyLike,
    absolute,
    callbacks,
    checked_argv,
    checked_path,
    checked_text,
    checked_variables,
    package_overrides,
    policy_choice,
    read_source,
    source_of,
)
from ._reports import SessionInfo
from ._session import Cell, Session
from ._snapshots import BaseSnapshot, Snapshot, checked_snapshot, roll_back_on_failure
from ._tools import Tools, check_name, check_seconds, collect

# Seconds that a session may take to add packages.
_ADDING = 30.0
# The maximum number of times that packages are resolved again, each time with more of the earlier additions
# as constraints.
_MAX_TIMES = 8


B = TypeVar("B", bound="BaseSandbox")


class BaseSandbox:
    """The part of `Sandbox` and `AsyncSandbox` that does not wait for the supervisor."""

    _driver: Driver[Session]

    def __init__(
        self,
        policy: PolicyLike = "standard",
        *,
        packages: Sequence[str] | None = None,
        environment: str | Environment | None = None,
        can_install: bool = False,
        tools: Tools | None = None,
        timeout: float | None = None,
        variables: Mapping[str, Any] | None = None,
        tool_timeout: float | None = None,
        tool_budget: int | None = None,
        approve: Approve | None = None,
        on_connect: OnConnect | None = None,
        tool_time: float | None = None,
        count_tool_time: bool = False,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        on_result: OnResult | None = None,
        on_death: str = "raise",
        ask_host: bool = False,
        saved: Path | None = None,
    ) -> None:
        if on_death not in ("raise", "restart"):
            raise RequestError(f'on_death is {on_death!r}: give "raise" or "restart"')
        self._timeout = check_seconds(timeout, "timeout")
        self._callbacks = callbacks(on_stdout, on_stderr, on_result)
        calls = Calls(
            collect(tools), timeout=tool_timeout, budget=tool_budget, approve=approve, on_connect=on_connect
        )
        allowed = calls.time_allowed(tool_time, counted=count_tool_time)
        sets = package_overrides(packages, environment)
        if can_install:
            sets.append("environments.add=true")
        if on_connect is not None:
            sets.append("network.ask=true")
        opening: dict[str, Any] = {
            "kind": "open",
            "policy": policy_choice(policy),
            "set": sets,
            "tool_time": allowed,
        }
        if ask_host:
            opening["ask_host"] = True
        if saved is not None:
            opening["saved"] = absolute(saved)
        revive, variables = on_death == "restart", checked_variables(variables)
        self._session = Session(opening, calls, variables=variables, revive=revive)
        self._begin()

    @classmethod
    def resume(cls: type[B], path: Path, policy: PolicyLike = "standard", **options: Any) -> B:
        """Opens a sandbox with the state that `pause` or `Snapshot.save` has saved to a file, in this process
        or in another process of this user. `options` are those of the class, including the `tools` that the
        guest may call from now on.

        The policy and the interpreter must be those of the saved sandbox. The file is kept, and each sandbox
        that is resumed from it gets fresh random state. Raises `RequestError` if the file cannot be resumed
        here.
        """
        return cls(policy, saved=checked_path(path), **options)

    def _begin(self) -> None:
        """Creates the driver of the session."""
        raise NotImplementedError

    def _wall(self, timeout: float | None) -> float | None:
        """Returns the timeout of a cell in seconds."""
        return self._timeout if timeout is None else check_seconds(timeout, "timeout")

    def _called(
        self, on_stdout: OnText | None, on_stderr: OnText | None, on_result: OnResult | None
    ) -> Callbacks:
        """Returns the callbacks for a cell's output."""
        if on_stdout is None and on_stderr is None and on_result is None:
            return self._callbacks
        return callbacks(on_stdout, on_stderr, on_result).over(self._callbacks)

    def _install(self, packages: tuple[str, ...]) -> Work[None]:
        """Adds packages to the session."""
        listed = checked_argv(packages, "packages")
        if not listed:
            raise RequestError("no package is named")
        yield from self._driver.conduct(self._session.opened())
        if not self.info.can_install:
            raise RequestError(
                "no packages can be added to this sandbox: open it with `can_install=True`, or with "
                "`environments.add` in its policy"
            )
        there: list[str] = []
        execution = yield from self._add(listed, there)
        for _ in range(_MAX_TIMES):
            if not isinstance(execution.value, list):
                break
            # The guest's list is untrusted, and becomes arguments of a command.
            there += [other[:1000] for other in execution.value[:64] if isinstance(other, str)]
            execution = yield from self._add(listed, there)
        if execution.value is not True:
            error = execution.error
            why = "it does not see them" if error is None else error.value
            raise RequestError(f"the session cannot use the packages: {why}")

    def _add(self, packages: Sequence[str], there: Sequence[str]) -> Work[Execution]:
        """Installs packages that are compatible with those in `there`, and adds them to the session."""
        executable = self.info.python.executable
        code = yield from self._driver.in_thread(lambda: installation_cell(executable, packages, there))
        cell = Cell(source_of(code), wall=_ADDING)
        return (yield from self._driver.conduct(self._session.run(cell)))

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in the running cell, if there is one. May be called from any thread."""
        self._driver.interrupt()

    @property
    def info(self) -> SessionInfo:
        """The session's enforced layers, policy, interpreter and limits, the resource usage of its cells,
        whether it is paused, and the session from which it was forked."""
        session = self._session
        if session.info is None:
            raise RequestError("the session is not open yet: use `async with`, or run a cell first")
        return replace(
            session.info,
            session=session.number,
            cells=session.cells,
            usage=session.usage.usage(),
            paused=self._driver.paused,
            forked_from=session.origin,
        )

    @property
    def live(self) -> bool:
        """Whether the session has a worker: it is open, and no limit or crash has ended it."""
        session = self._session
        return not self._driver.closed and session.info is not None and session.ended is None

    def __repr__(self) -> str:
        session = self._session
        state = "closed" if self._driver.closed else "ended" if session.ended is not None else "live"
        info = session.info
        policy = "" if info is None else f" policy={info.policy.name!r} level={info.enforced.level}"
        return f"<{type(self).__name__} {state}{policy}>"


class Sandbox(BaseSandbox):
    """A session: a sandboxed Python that keeps variables, imports and files from cell to cell.

        with Sandbox(tools={"add": add}, timeout=30) as sbx:
            sbx.run("x = add(1, 2)")
            assert sbx.run("x * 2").value == 6

    - `policy`: a built-in name (`standard`, `strict`, `data-science`), the path of a policy file, a
      `Policy`, or a dict of its tables, such as `{"limits": {"memory": "1GiB"}}`.
    - `packages`: packages for the guest, in the syntax of a requirements file: `"pandas==2.2.*"`. They are
      installed at the first use, in a sandbox that can reach only the index that pip is configured with, and
      kept for all later sandboxes. By default the guest has the interpreter's packages.
    - `environment`: an existing `Environment`, or its name.
    - `can_install`: whether `install` can add packages while the session runs.
    - `tools`: functions of this process that guest code may call by name. A tool runs in the thread that
      called `run`. A tool with a timeout runs in a helper thread, and an async tool in the sandbox's own
      event loop.
    - `timeout`: wall-clock seconds for each cell, instead of the policy's `limits.wall`.
    - `variables`: initial globals of the guest.
    - `tool_timeout`: seconds for each call of a tool.
    - `tool_budget`: number of tool calls in the sandbox's lifetime. The first call in a cell of a tool that
      ends it (`ends_cell`) does not count.
    - `approve(name, args, kwargs)`: decides on each tool call. `True` or `None` allows it; `False` or a
      reason refuses it.
    - `on_connect(host, port, addresses)`: decides on each connection to a host that the policy allows. Only
      `True` allows the connection; an exception, or a decision that takes more than five seconds, refuses it.
      `addresses` are the candidate addresses; it is empty if a proxy resolves the name.
    - `on_stdout`, `on_stderr`: called with text as the guest writes it.
    - `on_result`: called with a `Result` for each display of a cell.
    - `on_death`: what the next call does after the guest's process has ended (a limit, a crash). `"raise"`
      raises `SessionEnded`. `"restart"` starts a fresh session with the same tools and variables, and sets
      `Execution.restarted`.
    - `saved`: a file with a saved state to start from, as with `resume`.
    - `ask_host`: whether `Execution.denied` reports which hidden paths exist on the host. If you pass this on
      to the author of the code or to a model, you reveal the host's files to them.

    The time that a cell waits for tools and `approve` does not count towards its `timeout`, unless
    `count_tool_time` is set. `tool_time` bounds this uncounted time, in seconds for each cell: otherwise a
    guest that always has an open call would never end. The default is ten times the `timeout`, or
    `tool_timeout` times `tool_budget` (times ten without a budget) if that is more. Set a higher `tool_time`
    if a person approves calls, or if a tool is an agent.

    A sandbox serves one caller at a time. A second caller gets `SessionBusy` immediately.
    """

    _driver: SyncDriver[Session]

    def _begin(self) -> None:
        # The driver is its own owner, so that `Sandbox().files` works without a reference to the sandbox.
        self._driver = SyncDriver(self._session)
        self.files = Files(self._driver)
        """The files in the session's work directory."""
        self.commands = Commands(self._driver)
        """The programs that run in the session, concurrently with its cells."""
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
        """Runs a cell. The returned `Execution` reports everything that the guest does; guest code never
        causes an exception here.

        - `timeout`: wall-clock seconds, instead of the sandbox's `timeout`.
        - `filename`: the file name in tracebacks.
        - `last`: `"expression"` gives the value of the last expression. `"statement"` also gives the value
          of a last statement that assigns: `x = 3` gives 3.
        - `variables`: globals to set before the cell runs.
        """
        if last not in ("expression", "statement"):
            raise RequestError(f'last is {last!r}: give "expression" or "statement"')
        cell = Cell(
            source_of(code),
            filename=checked_text(filename, "filename"),
            last=last,
            wall=self._wall(timeout),
            callbacks=self._called(on_stdout, on_stderr, on_result),
            variables=checked_variables(variables),
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
        name = checked_path(path)
        cell = Cell(
            source_of(read_source(name)),
            filename=name,
            argv=checked_argv(argv),
            wall=self._wall(timeout),
            callbacks=self._called(on_stdout, on_stderr, on_result),
        )
        return self._driver.perform(self._session.run(cell))

    def set(self, **variables: Any) -> None:
        """Sets globals of the guest: `sbx.set(x=1)`."""
        return self.set_variables(variables)

    def set_variables(self, variables: Mapping[str, Any]) -> None:
        """Sets globals of the guest. A value that cannot be transferred becomes an `Opaque` in the guest."""
        return self._driver.perform(self._session.set_variables(checked_variables(variables)))

    def get(self, name: str) -> Any:
        """The value of a global of the guest. Raises `UndefinedVariable` if it is not defined."""
        return self._driver.perform(self._session.get(check_name(name, "a variable")))

    def add_tools(self, tools: Tools) -> None:
        """Adds host tools. A tool replaces an existing one of the same name."""
        return self._driver.perform(self._session.add_tools(collect(tools)))

    def install(self, *packages: str) -> None:
        """Adds packages to the running session, which can import them immediately: `sbx.install("pillow")`.

        The sandbox must have been opened with `can_install=True`. Packages that the session already has keep
        their version; on a conflict, `SystemFailure` is raised and nothing is added. After `restart`, call
        `install` again; it reuses the installed packages.
        """
        return self._driver.complete(self._install(packages))

    def snapshot(self) -> Snapshot:
        """Copies the state of the sandbox between two cells. The sandbox continues unchanged.

        Raises `RequestError` if the state cannot be copied, for example because of a thread; the message
        names the obstacle.
        """
        return Snapshot(self, *self._driver.perform(self._session.snapshot()))

    def fork(self, *, tools: Tools | None = None) -> Sandbox:
        """Opens a sandbox with a copy of this one's state."""
        with self.snapshot() as snapshot:
            return snapshot.fork(tools=tools)

    def pause(self, path: Path | None = None) -> None:
        """Saves the state of the sandbox to a file, as `Snapshot.save` does, and closes the sandbox.

            sbx.pause("analysis.state")
            ...
            sbx = Sandbox.resume("analysis.state")

        Without a path the sandbox stays open: its state is written to disk, its process ends, and the next
        use restores it. If saving or pausing fails, the sandbox continues unchanged.
        """
        if path is None:
            return self._driver.perform(self._session.pause())
        with self.snapshot() as snapshot:
            snapshot.save(path)
        return self.close()

    def rollback(self, snapshot: BaseSnapshot[Any]) -> None:
        """Restores the sandbox to a snapshot of this sandbox, or of another one with the same policy. This
        also works after the session has ended, and keeps the tools. If it fails, the sandbox is unchanged."""
        return self._driver.perform(checked_snapshot(snapshot).restore_into(self._session))

    def transaction(self) -> AbstractContextManager[Snapshot]:
        """Makes the cells of a block atomic: if one does not end with `ok`, or the block raises, the sandbox
        is rolled back to its state at the start of the block.

            with sbx.transaction():
                sbx.run(code)
        """
        return roll_back_on_failure(self)

    def restart(self) -> None:
        """Replaces the session with a fresh one. The policy, the tools and the initial variables are kept,
        nothing else."""
        return self._driver.perform(self._session.restart())

    def close(self) -> None:
        """Ends the session and everything in it, without waiting. May be called again, and from any thread,
        signal handler or finalizer."""
        self._driver.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

"""Runs one program in a fresh sandbox."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Callable

from ._calls import Calls
from ._conversation import Callbacks, OnText
from ._driver import Driver, SyncDriver, Work
from ._environment import Environment
from ._execution import Execution
from ._options import (
    PolicyLike,
    Stdin,
    callbacks,
    checked_argv,
    package_overrides,
    policy_choice,
    source_of,
)
from ._session import Cell, Session
from ._stdin import piped
from ._tools import check_seconds


def run(
    code: str,
    *,
    policy: PolicyLike = "standard",
    packages: Sequence[str] | None = None,
    environment: str | Environment | None = None,
    timeout: float | None = None,
    argv: Iterable[str] = (),
    stdin: Stdin | None = None,
    on_stdout: OnText | None = None,
    on_stderr: OnText | None = None,
) -> Execution:
    """Runs a program in a fresh sandbox, which is removed afterwards.

    - `packages`, `environment`: as for `Sandbox`.
    - `timeout`: wall-clock seconds, instead of the policy's `limits.wall`.
    - `stdin`: the program's standard input: text, bytes or an open file. The input is copied into a pipe, so
      the program never gets the caller's descriptor. A regular file is read from its descriptor's position,
      which does not change. From a pipe, a terminal or a socket, up to 128 KiB more may be read than the
      program reads.
    """
    output = callbacks(on_stdout, on_stderr)
    sets = package_overrides(packages, environment)
    return SyncDriver.complete(one_run(SyncDriver, code, policy, sets, timeout, argv, stdin, output))


def one_run(
    driver_of: Callable[[Session], Driver[Session]],
    code: str,
    policy: PolicyLike,
    sets: list[str],
    timeout: float | None,
    argv: Iterable[str],
    stdin: Stdin | None,
    callbacks: Callbacks,
) -> Work[Execution]:
    """Runs a program in a new session."""
    source, argv, wall = source_of(code), checked_argv(argv), check_seconds(timeout, "timeout")
    cell = Cell(source, "<string>", argv, then="end", wall=wall, callbacks=callbacks)
    opening: dict[str, Any] = {"kind": "open", "policy": policy_choice(policy), "set": sets}
    descriptor = None if stdin is None else piped(stdin)
    if descriptor is not None:
        # The caller's input takes precedence over the policy's `stdio.stdin`.
        opening.update(set=[*sets, "stdio.stdin=pass"], stdin=True)
    session = Session(opening, Calls(), stdin=descriptor)
    driver = driver_of(session)
    try:
        return (yield from driver.conduct(session.once(cell)))
    finally:
        driver.close()
        session.release()

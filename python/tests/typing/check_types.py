"""Checks with mypy the types that a caller sees. It is never run."""

from __future__ import annotations

import io
import pathlib
from collections.abc import AsyncIterator
from typing import Any

from typing_extensions import assert_type

import sandfork
from sandfork import (
    AsyncCommand,
    AsyncSandbox,
    Command,
    CommandResult,
    Execution,
    Policy,
    Result,
    RunningCommand,
    Sandbox,
    TaskResult,
    Tool,
)


def add(a: int, b: int) -> int:
    return a + b


async def fetch(url: str) -> bytes:
    return url.encode()


def approve(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    return None if name == "add" else "not today"


def blocking() -> None:
    seen: list[str] = []
    shown: list[Result] = []
    with Sandbox(
        policy=Policy(limits={"wall": "2s", "pids": 4}, env={"pass": ["TOKEN"]}),
        tools={"add": add, "fetch": fetch, "other": Tool("other", add, timeout=2)},
        timeout=30,
        approve=approve,
        on_stdout=seen.append,
        on_result=shown.append,
    ) as sbx:
        assert_type(sbx, Sandbox)
        execution = sbx.run("1 + 1", on_stderr=print)
        assert_type(execution, Execution)
        assert_type(execution.text, "str | None")
        assert_type(execution.results, list[Result])
        assert_type(execution.logs.stdout, list[str])
        assert_type(execution.error, "sandfork.ExecutionError | None")
        assert_type(execution.usage.peak_memory_bytes, "int | None")
        assert_type(execution.results[0].png_bytes, "bytes | None")
        assert_type(sbx.files.read("a"), bytes)
        assert_type(sbx.commands.run(["ls"], cwd="below", timeout=2), CommandResult)
        assert_type(sbx.commands.run("cat", stdin=True, pty=(24, 80), background=True), Command)
        assert_type(sbx.commands.list(), list[RunningCommand])
        assert_type(sbx.files.read_text(pathlib.PurePosixPath("a")), str)
        assert_type(sbx.files.list()[0].size, int)
        sbx.files.write("a", io.BytesIO(b"x"))
        sbx.files.write("a", io.StringIO("x"))
        sbx.add_tools([add, Tool("f", fetch)])
        assert_type(sbx.info.limits["limits.wall"], float)
        assert_type(sbx.info.usage, "sandfork.Usage | None")
        assert_type(execution.to_text(max_length=500), str)
    assert_type(sandfork.stats().ended["ok"], int)
    assert_type(sandfork.run("1"), Execution)
    Policy(python={"preload": {"remove": ["pandas"], "add": ["polars"]}}, env={"pass": {"remove": ["A"]}})
    assert_type(sandfork.run("1", policy={"limits": {"wall": "2s"}}), Execution)
    sandfork.map([{"code": "1", "limits": {"wall": "2s"}}])
    with sandfork.map([sandfork.Task("1", id=1)], jobs=2, ordered=True, on_progress=follow) as results:
        assert_type(next(results), TaskResult)
    expected = {"stdout": "1", "tolerance": 1e-6}
    for result in sandfork.map([sandfork.Task("1", expect="1"), {"code": "1", "expect": expected}]):
        assert_type(result.verdict, "str | None")
    assert_type([result.failure for result in sandfork.map(["1"])], "list[sandfork.SandforkError | None]")


def follow(progress: sandfork.Progress) -> None:
    assert_type(progress.remaining, "float | None")


async def coming() -> AsyncIterator[str]:
    yield "1"


async def asynchronous() -> None:
    async with AsyncSandbox("strict", tools=[fetch]) as sbx:
        assert_type(sbx, AsyncSandbox)
        assert_type(await sbx.run("1"), Execution)
        assert_type(await sbx.files.read("a"), bytes)
        assert_type(await sbx.commands.run(["ls"]), CommandResult)
        assert_type(await sbx.commands.run(["cat"], background=True), AsyncCommand)
        assert_type(await sandfork.async_run("1"), Execution)
    async for result in sandfork.async_map(coming(), policy="strict"):
        assert_type(result, TaskResult)


def refused() -> None:
    Policy(limits={"wall": 2})  # type: ignore[typeddict-item]
    Policy(python={"preload": {"removed": ["x"]}})  # type: ignore[typeddict-item]
    Policy(limits={"wal": "2s"})  # type: ignore[typeddict-unknown-key]
    Policy(limit={})  # type: ignore[call-arg]
    Sandbox(tools=3)  # type: ignore[arg-type]
    Sandbox().commands.run(["ls"], shell=True)  # type: ignore[call-overload]
    sandfork.run(b"1")  # type: ignore[arg-type]
    sandfork.map([b"1"])  # type: ignore[list-item]
    sandfork.Task(files={"f": 1})  # type: ignore[dict-item]

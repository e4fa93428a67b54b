"""The asyncio interface: the methods of the blocking interface, with a driver that awaits. The event loop
polls the supervisor's socket directly, so only synchronous tools need a thread."""

from __future__ import annotations

import asyncio
import functools
import inspect
import select
import time
import types
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Callable, Literal, TypeVar, overload

from . import _threads
from ._async_source import AsyncSource
from ._async_watches import AsyncFileWatch as AsyncFileWatch
from ._batch import Batch, OnProgress
from ._commands import Argv, BaseCommand, BaseCommands, Command, CommandOptions, Commands
from ._conversation import Actions, Invoke, Notify, OnText
from ._driver import C, Driver, Work
from ._environment import Environment
from ._execution import Execution
from ._files import BaseFiles, Files, Path
from ._link import Link
from ._map import BaseMapped, batch_of
from ._options import PolicyLike, Stdin, callbacks, package_overrides
from ._programs import CommandResult
from ._run import one_run
from ._sandbox import BaseSandbox, Sandbox
from ._session import Session
from ._snapshots import BaseSnapshot, Snapshot, checked_number
from ._tasks import TaskLike, TaskResult
from ._tools import Tools, is_async
from ._watches import OnEvent

T = TypeVar("T")
if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec

    from typing_extensions import Unpack

    P = ParamSpec("P")


class AsyncDriver(Driver[C]):
    """The driver of an asyncio task. A cancelled task interrupts its cell."""

    blocking = False

    @staticmethod
    @types.coroutine
    def complete(work: Work[T]) -> Work[T]:
        """Runs work to completion and returns its result."""
        return (yield from work)

    def perform(self, conversation: Actions[T]) -> Coroutine[Any, Any, T]:
        """Runs a conversation and returns its result."""
        return self.complete(self.conduct(conversation))

    def _check(self) -> None:
        super()._check()
        _threads.check_loop()

    def wait(self, link: Link, events: int, deadline: float | None = None, wake: Any = None) -> Work[bool]:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not ready.done():
                ready.set_result(None)

        descriptor = link.fileno()
        try:
            # A signal handler's exception may have left a reader for an earlier descriptor of this number.
            loop.remove_reader(descriptor)
            loop.add_reader(descriptor, finish)
            if events & select.POLLOUT:
                loop.add_writer(descriptor, finish)
            if deadline is None and wake is None:
                yield from ready
            else:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                awaited = (ready,) if wake is None else (ready, wake)
                yield from asyncio.wait(awaited, timeout=left, return_when=FIRST_COMPLETED).__await__()
            return ready.done()
        finally:
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)

    def invoke(self, action: Invoke) -> Work[Any]:
        if isinstance(action, Notify) or is_async(action.function):
            result = action.call()
        else:
            # The function may be slow, and it must not block the loop.
            future = _threads.start(action.call)
            try:
                result = yield from _within(asyncio.wrap_future(future), action.timeout).__await__()
            except BaseException:
                _threads.abandon(future)
                raise
        if inspect.isawaitable(result):
            result = yield from _within(result, action.timeout).__await__()
        return result

    def _settled(self) -> Work[bool]:
        # In a separate task, because an anyio cancel scope cancels the caller's task at each await.
        settling = asyncio.ensure_future(self.complete(super()._settled()))
        while not settling.done():
            with suppress(asyncio.CancelledError):
                yield from asyncio.wait((settling,)).__await__()
        return settling.result()

    def in_thread(self, function: Callable[[], T]) -> Work[T]:
        return asyncio.wrap_future(_threads.start(function)).__await__()


async def _within(awaitable: Any, timeout: float | None) -> Any:
    if timeout is None:
        return await awaitable
    task = asyncio.ensure_future(awaitable)
    try:
        return await asyncio.wait_for(task, timeout)
    except asyncio.TimeoutError:
        if not task.cancelled():
            # The function itself raised the exception.
            raise
        raise TimeoutError(f"the host's function took more than {timeout:g} s") from None


def _awaiting(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Returns the async version of a method that returns its driver's result."""
    complete: Any = method

    @functools.wraps(method)
    async def awaits(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await complete(self, *args, **kwargs)
        return result

    return awaits


class AsyncFiles(BaseFiles):
    """The async version of `Files`. Bytes are copied in a thread."""

    __slots__ = ()

    _driver: AsyncDriver[Session]
    _watch_kind = AsyncFileWatch

    write = _awaiting(Files.write)
    read = _awaiting(Files.read)
    read_bytes = _awaiting(Files.read_bytes)
    read_text = _awaiting(Files.read_text)
    list = _awaiting(Files.list)
    stat = _awaiting(Files.stat)
    exists = _awaiting(Files.exists)
    remove = _awaiting(Files.remove)
    make_dir = _awaiting(Files.make_dir)
    upload = _awaiting(Files.upload)
    download = _awaiting(Files.download)

    async def watch(
        self, path: Path = ".", *, recursive: bool = False, on_event: OnEvent | None = None
    ) -> AsyncFileWatch:
        """The async version of `Files.watch`."""
        watch: AsyncFileWatch = await self._driver.complete(self._watched(path, recursive, on_event))
        return watch


class AsyncCommand(BaseCommand):
    """The async version of `Command`."""

    __slots__ = ()

    _driver: AsyncDriver[Any]

    wait = _awaiting(Command.wait)
    kill = _awaiting(Command.kill)
    send_stdin = _awaiting(Command.send_stdin)
    close_stdin = _awaiting(Command.close_stdin)
    resize = _awaiting(Command.resize)


class AsyncCommands(BaseCommands):
    """The async version of `Commands`. Callbacks may be async."""

    __slots__ = ()

    _driver: AsyncDriver[Session]
    _kind = AsyncCommand

    @overload
    async def run(
        self, command: Argv, *, background: Literal[False] = False, **options: Unpack[CommandOptions]
    ) -> CommandResult: ...
    @overload
    async def run(
        self, command: Argv, *, background: Literal[True], **options: Unpack[CommandOptions]
    ) -> AsyncCommand: ...
    async def run(
        self, command: Argv, *, background: bool = False, **options: Unpack[CommandOptions]
    ) -> CommandResult | AsyncCommand:
        """The async version of `Commands.run`."""
        result: CommandResult | AsyncCommand = await self._driver.complete(
            self._run(command, background, **options)
        )
        return result

    list = _awaiting(Commands.list)
    kill = _awaiting(Commands.kill)


class AsyncSnapshot(BaseSnapshot["AsyncSandbox"]):
    """The async version of `Snapshot`. `AsyncSandbox.snapshot` takes it."""

    @overload
    async def fork(self, n: None = None, *, tools: Tools | None = None) -> AsyncSandbox: ...
    @overload
    async def fork(self, n: int, *, tools: Tools | None = None) -> list[AsyncSandbox]: ...
    async def fork(
        self, n: int | None = None, *, tools: Tools | None = None
    ) -> AsyncSandbox | list[AsyncSandbox]:
        """The async version of `Snapshot.fork`. A list's sandboxes are opened at the same time."""
        forks = [self._forked(tools) for _ in range(1 if n is None else checked_number(n))]
        for fork in forks:
            fork._begin()
        try:
            await asyncio.gather(*(fork._driver.perform(fork._session.opened()) for fork in forks))
        except BaseException:
            for fork in forks:
                await fork.close()
            raise
        return forks[0] if n is None else forks

    save = _awaiting(Snapshot.save)

    async def __aenter__(self) -> AsyncSnapshot:
        return self

    async def __aexit__(self, *raised: object) -> None:
        driver = self._made_by._driver
        # In a thread, because it waits for the supervisor.
        await driver.complete(driver.in_thread(self.close))


class AsyncSandbox(BaseSandbox):
    """The asyncio version of `Sandbox`, with the same arguments.

        async with AsyncSandbox(tools={"fetch": fetch}) as sbx:
            execution = await sbx.run("fetch('a')")

    `async with` or the first call opens it. Async tools are awaited in the caller's task; other tools run
    in a thread. Callbacks may be async. Cancelling the task that awaits a cell interrupts the cell. If the
    cell does not end within two seconds, it is ended together with its session.
    """

    _driver: AsyncDriver[Session]

    def _begin(self) -> None:
        self._driver = AsyncDriver(self._session)
        self.files = AsyncFiles(self._driver)
        """The files in the session's work directory."""
        self.commands = AsyncCommands(self._driver)
        """The programs that run in the session, concurrently with its cells."""

    run = _awaiting(Sandbox.run)
    run_file = _awaiting(Sandbox.run_file)
    set_variables = _awaiting(Sandbox.set_variables)
    get = _awaiting(Sandbox.get)
    add_tools = _awaiting(Sandbox.add_tools)
    install = _awaiting(Sandbox.install)
    rollback = _awaiting(Sandbox.rollback)
    restart = _awaiting(Sandbox.restart)

    async def snapshot(self) -> AsyncSnapshot:
        """The async version of `Sandbox.snapshot`."""
        return AsyncSnapshot(self, *await self._driver.perform(self._session.snapshot()))

    async def fork(self, *, tools: Tools | None = None) -> AsyncSandbox:
        """The async version of `Sandbox.fork`."""
        async with await self.snapshot() as snapshot:
            return await snapshot.fork(tools=tools)

    async def pause(self, path: Path | None = None) -> None:
        """The async version of `Sandbox.pause`."""
        if path is None:
            return await self._driver.perform(self._session.pause())
        async with await self.snapshot() as snapshot:
            await snapshot.save(path)
        return await self.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSnapshot]:
        """The async version of `Sandbox.transaction`."""
        async with await self.snapshot() as snapshot:
            failures = self._session.failures
            failed = True
            try:
                yield snapshot
                failed = self._session.failures != failures
            finally:
                if failed and not self._driver.closed:
                    await self.rollback(snapshot)

    async def set(self, **variables: Any) -> None:
        """Sets globals of the guest: `await sbx.set(x=1)`."""
        await self.set_variables(variables)

    async def close(self) -> None:
        """Ends the session and everything in it. May be called again."""
        self._driver.close()

    async def __aenter__(self) -> AsyncSandbox:
        await self._driver.perform(self._session.opened())
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


async def async_run(
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
    """The asyncio version of `run`."""
    output = callbacks(on_stdout, on_stderr)
    sets = package_overrides(packages, environment)
    return await AsyncDriver.complete(one_run(AsyncDriver, code, policy, sets, timeout, argv, stdin, output))


class AsyncMapped(BaseMapped):
    """The results of a batch, produced on demand. `async_map` returns it.

    It is an async iterator, and an async context manager that closes it. The batch starts when the first
    result is requested.
    """

    def __init__(self, batch: Batch) -> None:
        self._driver = AsyncDriver(batch, owner=self)

    async def aclose(self) -> None:
        """Ends the batch and its running tasks. May be called again."""
        self._driver.close()
        await self._driver.session.source.cancel()

    def __aiter__(self) -> AsyncMapped:
        return self

    async def __anext__(self) -> TaskResult:
        try:
            result = await AsyncDriver.complete(self._next())
        finally:
            if self._driver.closed:
                await self.aclose()
        if result is None:
            raise StopAsyncIteration
        return result

    async def __aenter__(self) -> AsyncMapped:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()


def async_map(
    tasks: Iterable[TaskLike] | AsyncIterable[TaskLike],
    *,
    policy: PolicyLike = "standard",
    packages: Sequence[str] | None = None,
    environment: str | Environment | None = None,
    timeout: float | None = None,
    jobs: int | None = None,
    ordered: bool = False,
    on_progress: OnProgress | None = None,
) -> AsyncMapped:
    """The asyncio version of `map`. `tasks` may also be an async iterable: the batch waits for its next task
    and for results at the same time. `on_progress` may be async.

        async for result in sandfork.async_map(tasks()):
            print(result.id, result.status)

    Cancelling the task that waits for a result ends the batch.
    """
    source = AsyncSource(tasks.__aiter__()) if isinstance(tasks, AsyncIterable) else None
    sets = package_overrides(packages, environment)
    return AsyncMapped(batch_of(tasks, policy, sets, timeout, jobs, ordered, on_progress, source))

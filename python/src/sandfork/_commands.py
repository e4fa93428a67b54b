"""Programs that run in a session, concurrently with its cells.

Each program has a separate connection to the supervisor, so that several can run at once, even while a cell
runs. Each request for a running program (input, a signal) uses a new connection, so that it can be made while
another thread or task waits for the program.
"""

from __future__ import annotations

import signal as signals
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Callable, Literal, TypedDict, TypeVar, Union, overload

from . import _supervisor
from ._conversation import Actions, Conversation, OnText
from ._driver import Driver, SyncDriver, Work
from ._exceptions import ProtocolError, RequestError, SessionBusy, SessionEnded, SupervisorDied
from ._options import callbacks, checked_argv, checked_count, checked_path, utf_8
from ._programs import CHUNK, Act, Beside, CommandResult, Program
from ._session import Session
from ._tools import check_seconds

Argv = Union[str, Iterable[str]]
Input = Union[bytes, bytearray, memoryview, str]
Pty = Union[bool, "tuple[int, int]"]

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import Unpack

_STANDARD = (24, 80)
_LARGEST = 2**63 - 1
# Linux numbers processes up to this (proc_sys_kernel(5)), and signals up to the other (signal(7)).
_MAX_PROCESSES = 2**22
_MAX_SIGNALS = 64
_MAX_ROWS = 2**16 - 1
# The number of handles on background programs above which those of ended programs are dropped.
_MAX_KNOWN = 64


class CommandOptions(TypedDict, total=False):
    """The options of `Commands.run`."""

    cwd: str | None
    env: Mapping[str, str] | None
    stdin: Input | bool | None
    timeout: float | None
    on_stdout: OnText | None
    on_stderr: OnText | None
    pty: Pty
    output: int | None


class RunningCommand:
    """A running program, as listed by `Commands.list`."""

    __slots__ = ("argv", "pid")

    def __init__(self, pid: int, argv: Sequence[str]) -> None:
        self.pid = pid
        """The process ID in the sandbox."""
        self.argv = list(argv)
        """The program and its arguments."""

    def __repr__(self) -> str:
        return f"<RunningCommand {self.pid} {self.argv!r}>"


class BaseCommand:
    """The part of `Command` and `AsyncCommand` that does not wait for the supervisor."""

    __slots__ = ("__weakref__", "_driver", "_of_session", "argv")

    def __init__(self, driver: Driver[Program], of_session: int, argv: Sequence[str]) -> None:
        self._driver, self._of_session = driver, of_session
        # The end of the connection ends the program.
        weakref.finalize(self, driver.resources.close)
        self.argv = list(argv)
        """The program and its arguments."""

    @property
    def pid(self) -> int:
        """The process ID in the sandbox."""
        return self._driver.session.pid

    @property
    def result(self) -> CommandResult | None:
        """The program's result, once `wait` has received it."""
        return self._driver.session.result

    @property
    def stdout(self) -> str:
        """The standard output that `wait` has received so far."""
        return "".join(self._driver.session.output.logs.stdout)

    @property
    def stderr(self) -> str:
        """The standard error that `wait` has received so far."""
        return "".join(self._driver.session.output.logs.stderr)

    def _waited(self) -> Work[CommandResult]:
        program = self._driver.session
        if program.result is None:
            yield from self._driver.conduct(program.follow())
            self._driver.close()
        assert program.result is not None
        return program.result

    def _act(self, *requests: tuple[dict[str, Any], bytes]) -> Work[None]:
        self._driver.check_process()
        return _acted(type(self._driver), self._of_session, self.pid, requests)

    def _typed(self, data: Input) -> Work[None]:
        data = _bytes_of(data)
        parts = (data[start : start + CHUNK] for start in range(0, len(data), CHUNK))
        return self._act(*(({"kind": "input", "end": False}, part) for part in parts))

    def __repr__(self) -> str:
        result = self.result
        state = "running" if result is None else result.status
        return f"<{type(self).__name__} {self.pid} {self.argv!r} {state}>"


class Command(BaseCommand):
    """A program that runs in the background. `wait` waits for its end, and calls the callbacks meanwhile.

    A program that prints more than the connection can buffer, a megabyte, blocks until `wait` reads its
    output.
    """

    __slots__ = ()

    _driver: SyncDriver[Program]

    def wait(self) -> CommandResult:
        """Waits until the program has ended, and returns its result."""
        return self._driver.complete(self._waited())

    def kill(self, signal: int = signals.SIGKILL) -> None:
        """Sends a signal to the program's process group. Raises `RequestError` if the program has ended."""
        return self._driver.complete(self._act(_signal(signal)))

    def send_stdin(self, data: Input) -> None:
        """Writes to the program's standard input or terminal. Blocks while the program does not read."""
        return self._driver.complete(self._typed(data))

    def close_stdin(self) -> None:
        """Closes the program's standard input, so that the program reads EOF."""
        return self._driver.complete(self._act(({"kind": "input", "end": True}, b"")))

    def resize(self, rows: int, columns: int) -> None:
        """Changes the size of the program's terminal."""
        return self._driver.complete(self._act(({"kind": "size", **_size(rows, columns)}, b"")))


class BaseCommands:
    """The part of `Commands` and `AsyncCommands` that does not wait for the supervisor."""

    __slots__ = ("_driver", "_known")

    _kind: Callable[..., Any]

    def __init__(self, driver: Driver[Session]) -> None:
        self._driver = driver
        # Background programs by pid. A program ends with its connection, so handles are kept while it runs.
        self._known: dict[int, BaseCommand] = {}

    def connect(self, pid: int) -> Any:
        """Returns the handle on a background program, by its process ID."""
        command = self._known.get(pid)
        if command is None:
            raise RequestError(f"no program of the session has the number {pid}: it has ended, or never was")
        return command

    def _run(
        self,
        command: Argv,
        background: bool,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Input | bool | None = None,
        timeout: float | None = None,
        on_stdout: OnText | None = None,
        on_stderr: OnText | None = None,
        pty: Pty = False,
        output: int | None = None,
    ) -> Work[Any]:
        argv = ("/bin/sh", "-c", command) if isinstance(command, str) else checked_argv(command)
        seconds = check_seconds(timeout, "timeout")
        called, variables = callbacks(on_stdout, on_stderr), _checked_env(env)
        cwd = None if cwd is None else checked_path(cwd)
        output = None if output is None else checked_count(output, "output", _LARGEST)
        size = None if pty is False else _size_of(_STANDARD if pty is True else pty)
        takes_input = stdin is not None and stdin is not False
        data = _bytes_of(stdin) if takes_input and not isinstance(stdin, bool) else None
        opening: dict[str, Any] = {"kind": "program", "argv": argv, "env": variables, "stdin": takes_input}
        optional = {"cwd": cwd, "timeout": seconds, "output": output, "terminal": size}
        opening.update((name, value) for name, value in optional.items() if value is not None)
        kind: Any = type(self._driver)

        def start(of_session: int) -> Work[tuple[Driver[Program], Any]]:
            info = self._driver.session.info
            if seconds is None and not background and info is not None and "limits.wall" in info.limits:
                opening["timeout"] = info.limits["limits.wall"]
            driver: Driver[Program] = kind(Program({**opening, "session": of_session}, called, data))
            with _closed_on_failure(driver):
                yield from driver.conduct(driver.session.start())
            return driver, self._kind(driver, of_session, argv)

        if len(self._known) >= _MAX_KNOWN:
            yield from self._listed()
        driver, started = yield from in_live_session(self._driver, start)
        if background:
            self._known[started.pid] = started
            return started
        with _closed_on_failure(driver):
            return (yield from started._waited())

    def _listed(self) -> Work[list[RunningCommand]]:
        def ask(of_session: int) -> Work[Any]:
            asking = Beside({"kind": "programs", "session": of_session})
            return _once(type(self._driver), asking, asking.open("programs"))

        header = yield from in_live_session(self._driver, ask)
        listed = [RunningCommand(int(one["pid"]), list(map(str, one["argv"]))) for one in header["programs"]]
        running = {one.pid for one in listed}
        self._known = {pid: known for pid, known in self._known.items() if pid in running}
        return listed

    def _killed(self, pid: int, signal: int) -> Work[None]:
        pid, request = checked_count(pid, "pid", _MAX_PROCESSES), _signal(signal)
        kind = type(self._driver)
        return in_live_session(self._driver, lambda number: _acted(kind, number, pid, (request,)))


class Commands(BaseCommands):
    """The programs of a session, which run concurrently with its cells. They have the same jail, see the same
    files, and their usage counts towards the session's limits."""

    __slots__ = ()

    _driver: SyncDriver[Session]
    _kind = Command

    @overload
    def run(
        self, command: Argv, *, background: Literal[False] = False, **options: Unpack[CommandOptions]
    ) -> CommandResult: ...
    @overload
    def run(
        self, command: Argv, *, background: Literal[True], **options: Unpack[CommandOptions]
    ) -> Command: ...
    def run(
        self, command: Argv, *, background: bool = False, **options: Unpack[CommandOptions]
    ) -> CommandResult | Command:
        """Runs a program, and returns its `CommandResult`; in the background, a `Command` once it runs.

        - `command`: a program and its arguments, or a shell command line.
        - `cwd`: the current directory of the program; by default the work directory.
        - `env`: variables in addition to the session's initial environment.
        - `stdin`: the program's input, or `True` to write it later with `Command.send_stdin`. For a
          background program, `Command.wait` writes the input.
        - `timeout`: seconds after which the program's process group is killed. The default is the policy's
          `limits.wall` for a foreground program, and no limit for a background program.
        - `on_stdout`, `on_stderr`: called with text as the program prints it, while the caller waits for it.
        - `pty`: gives the program a terminal of size `(rows, columns)`, or `True` for one of 24 by 80. All
          output is then standard output.
        - `output`: the maximum number of output bytes, instead of the policy's `limits.output`.

        Raises `RequestError` if the program cannot be started. A program ends with its session, and when a
        foreground wait for it is interrupted.
        """
        result: CommandResult | Command = self._driver.complete(self._run(command, background, **options))
        return result

    def list(self) -> list[RunningCommand]:
        """Lists the running programs."""
        return self._driver.complete(self._listed())

    def kill(self, pid: int, signal: int = signals.SIGKILL) -> None:
        """Sends a signal to the process group of a program. Raises `RequestError` if it does not exist."""
        return self._driver.complete(self._killed(pid, signal))


def _checked_env(env: Mapping[str, str] | None) -> dict[str, str]:
    if env is None:
        return {}
    if not isinstance(env, Mapping) or not all(isinstance(x, str) for pair in env.items() for x in pair):
        raise RequestError("env is not a dict of texts: give one")
    return dict(env)


def in_live_session(driver: Driver[Session], work: Callable[[int], Work[T]]) -> Work[T]:
    """Performs work that uses its own connection, for the current session, or for a fresh one with
    `on_death="restart"`. `work` receives the session's number in its supervisor."""
    with suppress(SessionEnded):
        return (yield from work((yield from _number(driver))))
    # The session has ended. A request on its own connection records the reason and, with
    # `on_death="restart"`, starts a fresh session. If the connection is busy, a running cell does the same.
    with suppress(SessionBusy):
        yield from driver.conduct(driver.session.file("stat", "."))
    return (yield from work((yield from _number(driver))))


@contextmanager
def _closed_on_failure(driver: Driver[Program]) -> Iterator[None]:
    """Closes a program's connection on an exception, which ends the program."""
    try:
        yield
    except BaseException:
        driver.close()
        raise


def _number(driver: Driver[Session]) -> Work[int]:
    """Returns the number by which other connections refer to a session, and opens the session if
    necessary."""
    session = driver.session
    driver._check()

    def check_supervisor() -> Actions[None]:
        if _supervisor.is_gone(session.supervisor):
            raise SupervisorDied("the supervisor has ended, and the session with it")
        return
        yield

    if session.info is None or session.ended is not None or _supervisor.is_gone(session.supervisor):
        # As for a cell, the session is opened, or restarted with `on_death="restart"`.
        yield from driver.conduct(session._in_live_session(check_supervisor))
    if session.supervised is None:
        raise ProtocolError("the supervisor did not say how to find the session's programs")
    return session.supervised


def _signal(signal: int) -> tuple[dict[str, Any], bytes]:
    return {"kind": "signal", "signal": checked_count(signal, "signal", _MAX_SIGNALS)}, b""


def _size_of(pty: Any) -> dict[str, Any]:
    if isinstance(pty, (tuple, list)) and len(pty) == 2:
        return _size(*pty)
    raise RequestError(f"pty is {pty!r}: give True, False or rows and columns")


def _size(rows: int, columns: int) -> dict[str, Any]:
    return {
        "rows": checked_count(rows, "rows", _MAX_ROWS),
        "columns": checked_count(columns, "columns", _MAX_ROWS),
    }


def _once(kind: Any, conversation: Conversation, actions: Actions[Any]) -> Work[Any]:
    """Runs one conversation on a separate connection."""
    driver = kind(conversation)
    try:
        return (yield from driver.conduct(actions))
    finally:
        driver.close()


def _acted(
    kind: Any, of_session: int, pid: int, requests: Iterable[tuple[dict[str, Any], bytes]]
) -> Work[None]:
    acting = Act({"kind": "attach", "session": of_session, "pid": pid})
    yield from _once(kind, acting, acting.act(requests))


def _bytes_of(data: Any) -> bytes:
    if isinstance(data, str):
        return utf_8(data, "the input")
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise RequestError(f"the input is of type {type(data).__name__}: give bytes or text")

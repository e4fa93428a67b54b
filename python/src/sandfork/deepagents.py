"""A sandbox of deepagents: the agent's files and its `execute` tool are in a session.

    from deepagents import create_deep_agent
    from sandfork.deepagents import SandforkBackend

    with SandforkBackend() as backend:
        agent = create_deep_agent(model=model, backend=backend)

`docs/frameworks.md` has the table of what the suite of LangChain says.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from . import _threads
from ._commands import Command, Commands
from ._exceptions import FileError, RequestError, SandforkError, SessionClosed, SessionForked
from ._frameworks import LONGEST, MOST_PROGRAMS, NOT_FOUND, ROOMY, needed, read_anywhere, write_anywhere
from ._sandbox import Sandbox
from ._tools import check_seconds

with needed(__name__, "deepagents", "deepagents", "deepagents"):
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox

if TYPE_CHECKING:
    from deepagents.backends.protocol import FileOperationError

    from ._driver import Driver, SyncDriver, Work
    from ._environment import Environment
    from ._options import PolicyLike
    from ._programs import Program
    from ._session import Session

    T = TypeVar("T")

__all__ = ["SandforkBackend"]

_WORDS: dict[int | None, FileOperationError] = {
    errno.ENOENT: "file_not_found",
    errno.EACCES: "permission_denied",
    errno.EISDIR: "is_directory",
    errno.EINVAL: "invalid_path",
}
# What the backend's owner has done, and not its agent.
_OWNERS = (SessionClosed, SessionForked)
# The exit status of timeout(1) if it could not run a command.
_NOT_RUN = 125


class _OneProgram(Commands):
    """The programs of a session, for a call that starts one of them, which another thread can stop."""

    def __init__(self, driver: SyncDriver[Session]) -> None:
        super().__init__(driver)
        self._program: Driver[Program] | None = None
        self._stopped = False

    def stop(self) -> None:
        """Kills the program. One that does not run yet is not started, or killed at once."""
        self._stopped = True
        if self._program is not None:
            self._program.close()

    def require_wanted(self) -> None:
        if self._stopped:
            raise SessionClosed("the caller has left")

    def _kind(  # type: ignore[override]
        self, driver: Driver[Program], of_session: int, argv: Sequence[str]
    ) -> Command:
        # Before the test: `stop` may be called between the two.
        self._program = driver
        if self._stopped:
            driver.close()
        return Command(driver, of_session, argv)


class SandforkBackend(BaseSandbox):
    """A session of Sandfork as a backend of deepagents. `close` or the end of a `with` block ends it.

    A command may end the session, as `pkill -f python` does. The next call says so and begins another one.

    - `policy`, `packages`, `environment`: as those of `sandfork.Sandbox`. Without `policy` it is `standard`
      with room for an agent: a day, 1 GiB of memory, 256 MiB of files.
    - `timeout`: seconds for a command that has no timeout of its own.
    - `output`: the most bytes of a command's output. A command that prints more is ended, and its response is
      `truncated`.
    - `max_file_bytes`: the most bytes of a file that is downloaded.
    """

    def __init__(
        self,
        policy: PolicyLike = ROOMY,
        *,
        packages: Sequence[str] | None = None,
        environment: str | Environment | None = None,
        timeout: float = 1800,
        output: int = 10 << 20,
        max_file_bytes: int = 100 << 20,
    ) -> None:
        self._timeout = check_seconds(timeout, "timeout")
        self._output, self._max_file_bytes = output, max_file_bytes
        # deepagents calls from several threads. A session serves one request for a file at a time.
        self._turn = threading.Lock()
        self._room = threading.Semaphore(MOST_PROGRAMS)
        self.sandbox = Sandbox(policy, packages=packages, environment=environment)
        """The session."""

    @property
    def id(self) -> str:
        """Names the sandbox among those of this process."""
        return f"sandfork-{self.sandbox.info.session}"

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a line of the shell. A `timeout` of 0 is none."""
        return self._executed(_OneProgram(self.sandbox._driver), command, timeout)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """The async version of `execute`. Cancelling it kills the program."""
        programs = _OneProgram(self.sandbox._driver)
        future = _threads.start(lambda: self._executed(programs, command, timeout))
        try:
            response: ExecuteResponse = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            programs.stop()
            _threads.abandon(future)
            raise
        return response

    def _executed(self, programs: _OneProgram, command: str, timeout: int | None) -> ExecuteResponse:
        seconds = self._timeout if timeout is None else check_seconds(timeout or LONGEST, "timeout")
        printed: list[str] = []
        try:
            with self._room:
                programs.require_wanted()
                result = programs.run(
                    command,
                    timeout=seconds,
                    output=self._output,
                    on_stdout=printed.append,
                    on_stderr=printed.append,
                )
        except RequestError as error:
            return ExecuteResponse(str(error), NOT_FOUND)
        except _OWNERS:
            raise
        except SandforkError as error:
            return ExecuteResponse(self._failed(error), _NOT_RUN)
        if result.status == "timeout":
            printed.append(f"\nThe command was ended after {seconds:g} seconds.")
        elif result.status == "output-limit":
            printed.append(f"\nThe command was ended because it printed more than {self._output} bytes.")
        elif result.status == "lost":
            printed.append(f"\nThe command was lost: {result.why}")
        is_cut = result.status == "output-limit"
        return ExecuteResponse("".join(printed), result.shell_code, truncated=is_cut)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files. Each of them succeeds or fails by itself."""
        return [FileUploadResponse(path, self._uploaded(path, data)) for path, data in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files. Each of them succeeds or fails by itself."""
        return [self._downloaded(path) for path in paths]

    def close(self) -> None:
        """Ends the session and everything in it. May be called again."""
        self.sandbox.close()

    def __enter__(self) -> SandforkBackend:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _uploaded(self, path: str, data: bytes) -> FileOperationError | str | None:
        _, error = self._with_file(path, write_anywhere(self.sandbox, path, data))
        return error

    def _downloaded(self, path: str) -> FileDownloadResponse:
        work = read_anywhere(self.sandbox, path, self._max_file_bytes)
        return FileDownloadResponse(path, *self._with_file(path, work))

    def _with_file(self, path: str, work: Work[T]) -> tuple[T | None, FileOperationError | str | None]:
        """The result, or what is wrong."""
        if not path.startswith("/"):
            return None, "invalid_path"
        try:
            with self._turn:
                return self.sandbox._driver.complete(work), None
        except FileError as error:
            return None, _WORDS.get(error.errno) or str(error)
        except _OWNERS:
            raise
        except SandforkError as error:
            return None, self._failed(error)

    def _failed(self, error: SandforkError) -> str:
        """What an agent reads of an error. If the session has ended, another one begins."""
        with self._turn:
            if self.sandbox.live:
                return str(error)
            ended = self.sandbox._session.ended
            try:
                self.sandbox.restart()
            except _OWNERS:
                raise
            except SandforkError as second:
                return f"{ended}; no other one could be started: {second}"
        return f"{ended}. Another session has begun without them, in which this was not done."

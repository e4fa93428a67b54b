"""A sandbox for deepagents: the agent's files and its `execute` tool are in a session.

    from deepagents import create_deep_agent
    from sandfork.deepagents import SandforkBackend

    with SandforkBackend() as backend:
        agent = create_deep_agent(model=model, backend=backend)

`docs/frameworks.md` has the results of LangChain's test suite.
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
from ._frameworks import LONGEST, MAX_PROGRAMS, NOT_FOUND, ROOMY, needed, read_anywhere, write_anywhere
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

_ERROR_CODES: dict[int | None, FileOperationError] = {
    errno.ENOENT: "file_not_found",
    errno.EACCES: "permission_denied",
    errno.EISDIR: "is_directory",
    errno.EINVAL: "invalid_path",
}
# Errors that the backend's owner has caused, and not its agent.
_OWNERS = (SessionClosed, SessionForked)
# The exit status of timeout(1) if it could not run a command.
_NOT_RUN = 125


class _OneProgram(Commands):
    """Starts one program of a session, which another thread can stop."""

    def __init__(self, driver: SyncDriver[Session]) -> None:
        super().__init__(driver)
        self._program: Driver[Program] | None = None
        self._stopped = False

    def stop(self) -> None:
        """Kills the program. If it is not running yet, it is not started, or is killed right after its
        start."""
        self._stopped = True
        if self._program is not None:
            self._program.close()

    def require_wanted(self) -> None:
        if self._stopped:
            raise SessionClosed("the caller has left")

    def _kind(  # type: ignore[override]
        self, driver: Driver[Program], of_session: int, argv: Sequence[str]
    ) -> Command:
        # Set before the check, because `stop` may be called in between.
        self._program = driver
        if self._stopped:
            driver.close()
        return Command(driver, of_session, argv)


class SandforkBackend(BaseSandbox):
    """A Sandfork session as a deepagents backend. `close` or the end of a `with` block ends it.

    A command may end the session, as `pkill -f python` does. The next call reports this and starts another.

    - `policy`, `packages`, `environment`: as for `sandfork.Sandbox`. The default policy is `standard` with
      higher limits: a day, 1 GiB of memory, 256 MiB of files.
    - `timeout`: the default timeout of a command in seconds.
    - `output`: the maximum number of output bytes of a command. A command that prints more is ended, and its
      response is `truncated`.
    - `max_file_bytes`: the maximum size of a downloaded file.
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
        # deepagents calls from several threads, but a session serves one file request at a time.
        self._turn = threading.Lock()
        self._room = threading.Semaphore(MAX_PROGRAMS)
        self.sandbox = Sandbox(policy, packages=packages, environment=environment)
        """The session."""

    @property
    def id(self) -> str:
        """A name that is unique among the sandboxes of this process."""
        return f"sandfork-{self.sandbox.info.session}"

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command line. A `timeout` of 0 means no timeout."""
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
        """Writes files. Each one succeeds or fails independently."""
        return [FileUploadResponse(path, self._uploaded(path, data)) for path, data in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files. Each one succeeds or fails independently."""
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
        """Performs file work. Returns its result, or an error."""
        if not path.startswith("/"):
            return None, "invalid_path"
        try:
            with self._turn:
                return self.sandbox._driver.complete(work), None
        except FileError as error:
            return None, _ERROR_CODES.get(error.errno) or str(error)
        except _OWNERS:
            raise
        except SandforkError as error:
            return None, self._failed(error)

    def _failed(self, error: SandforkError) -> str:
        """Returns the text of an error for an agent. If the session has ended, starts a new one."""
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

"""A sandbox for inspect_ai: each sample of an evaluation has a separate session.

    Task(dataset, solver=[use_tools(bash(), python()), generate()], scorer=..., sandbox="sandfork")

inspect_ai finds it by name if both packages are installed. `sandbox=("sandfork", "policy.toml")` selects a
policy file, and `SandboxEnvironmentSpec("sandfork", SandforkConfig(...))` sets all options.
`docs/frameworks.md` has the results of inspect_ai's own test suite.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, overload

from ._async import AsyncSandbox
from ._exceptions import FileError, PolicyError, RequestError, SandforkError, ValueTooLarge
from ._frameworks import (
    LONGEST,
    MAX_PROGRAMS,
    NOT_FOUND,
    ROOMY,
    builtin_error,
    needed,
    read_anywhere,
    write_anywhere,
)
from ._programs import CommandResult

with needed(__name__, "inspect", "inspect_ai", "inspect_ai", "pydantic"):
    import pydantic
    from inspect_ai import util

__all__ = ["SandforkConfig", "SandforkSandboxEnvironment"]

# Runs a script as the kernel would: a `#!interpreter` line has at most one argument.
_BY_ITS_INTERPRETER = """\
IFS= read -r first < "$1"
case $first in
'#!'*) read -r program argument <<END
${first#??}
END
exec "$program" ${argument:+"$argument"} "$1";;
*) exec /bin/sh "$1";;
esac
"""
# The exit status of env(1) for a program that it cannot execute.
_NOT_EXECUTABLE = 126


class SandforkConfig(pydantic.BaseModel):
    """The configuration of a sample's sandbox: arguments of `sandfork.AsyncSandbox`."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    policy: str | dict[str, Any] | None = None
    """A policy's name, its file, or a dict of its tables. The default is `standard` with higher limits: a
    day, 1 GiB of memory, 256 MiB of files."""
    packages: list[str] | None = None
    environment: str | None = None

    def __hash__(self) -> int:
        # inspect_ai uses configurations as keys, but dicts and lists are not hashable. Equal configurations
        # have equal hashes, because their dicts have the same keys.
        policy = frozenset(self.policy) if isinstance(self.policy, dict) else self.policy
        return hash((policy, tuple(self.packages or ()), self.environment))


@util.sandboxenv(name="sandfork")
class SandforkSandboxEnvironment(util.SandboxEnvironment):
    """A Sandfork session as an inspect_ai sandbox."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._own_names: list[str] = []
        # The files that were written to /tmp, where no file can be executed.
        self._written: set[str] = set()
        self._room = asyncio.Semaphore(MAX_PROGRAMS)
        # A session serves one file request at a time.
        self._turn = asyncio.Lock()

    @classmethod
    def config_files(cls) -> list[str]:
        """Returns the name of the policy file beside a task that is used by default."""
        return ["sandfork.toml"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> pydantic.BaseModel:
        return SandforkConfig(**config)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: util.SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, util.SandboxEnvironment]:
        if isinstance(config, str):
            _check_is_file(config)
        if config is None or isinstance(config, str):
            config = SandforkConfig(policy=config)
        if not isinstance(config, SandforkConfig):
            raise TypeError(
                f"the sandbox's configuration is a {type(config).__name__}: give a SandforkConfig"
            )
        policy = ROOMY if config.policy is None else config.policy
        sandbox = AsyncSandbox(policy, packages=config.packages, environment=config.environment)
        return {"default": cls(await sandbox.__aenter__())}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: util.SandboxEnvironmentConfigType | None,
        environments: dict[str, util.SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await environment.as_type(cls).sandbox.close()

    def default_polling_interval(self) -> float:
        return 0.2

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> util.ExecResult[str]:
        """Runs a program. It is not retried after a timeout, because it may have had side effects."""
        if user is not None and not await self._is_own(user):
            raise util.SandboxUserUnsupportedError(
                f"a sandbox has one user, {self._own_names[0]!r}, and cannot run a program as {user!r}"
            )
        most = util.SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        options: dict[str, Any] = {
            "cwd": cwd,
            "env": env,
            "stdin": input,
            "timeout": LONGEST if timeout is None else timeout,
            # The limit applies to each of the two streams.
            "output": 2 * most,
        }
        try:
            result = await self._run(cmd, **options)
            if cmd[-1] in self._written and _is_not_executable(result, cmd[-1]):
                # inspect_ai executes the `setup` of a sample in this way.
                result = await self._run(["/bin/sh", "-c", _BY_ITS_INTERPRETER, "sh", cmd[-1]], **options)
        except RequestError as error:
            if error.errno == errno.EACCES:
                raise PermissionError(error.errno, str(error)) from error
            if any("\0" in word for word in cmd):
                # By this message inspect_ai recognises an error that the model can correct.
                raise ValueError("embedded null byte") from error
            # The model wrote the command, and can correct it when it sees the error.
            is_of_model = isinstance(error, ValueTooLarge) or _has_surrogate(cmd, input)
            if error.errno is None and not is_of_model:
                raise
            return util.ExecResult(False, NOT_FOUND, "", str(error))
        return _exec_result(result, most)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        data = contents.encode() if isinstance(contents, str) else contents
        await self._with_file(write_anywhere(self.sandbox, file, data))
        if file.startswith("/tmp/"):
            self._written.add(file)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        most = util.SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data: bytes = await self._with_file(read_anywhere(self.sandbox, file, most))
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            limit = util.SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR
            raise util.OutputLimitExceededError(limit, None) from error
        return data.decode() if text else data

    async def _with_file(self, work: Any) -> Any:
        try:
            with _unavailable():
                async with self._turn:
                    return await self.sandbox._driver.complete(work)
        except FileError as error:
            raise builtin_error(error) from error

    async def _is_own(self, user: str) -> bool:
        """Returns whether `user` is the name or the uid of the sandbox's only user."""
        if not self._own_names:
            result = await self._run("id -un; id -u")
            self._own_names = result.stdout.split()
        return user in self._own_names

    async def _run(self, command: str | list[str], **options: Any) -> CommandResult:
        with _unavailable():
            async with self._room:
                result = await self.sandbox.commands.run(command, **options)
            if result.status == "lost":
                raise util.SandboxUnavailableError(f"the command was lost: {result.why}")
            return result


@contextmanager
def _unavailable() -> Iterator[None]:
    """Converts errors of the sandbox to inspect_ai's error for an unavailable sandbox. Errors of the request
    propagate unchanged."""
    try:
        yield
    except (RequestError, FileError):
        raise
    except SandforkError as error:
        raise util.SandboxUnavailableError(str(error)) from error


def _check_is_file(config: str) -> None:
    """Raises `PolicyError` for a missing file. inspect_ai treats any text as a file of the task, including
    the name of a policy."""
    if os.path.isabs(config) and not os.path.exists(config):
        name = os.path.basename(config)
        message = f"{config} is not there: for the policy of that name give SandforkConfig(policy={name!r})"
        raise PolicyError(message)


def _has_surrogate(cmd: list[str], input: str | bytes | None) -> bool:
    texts = [*cmd, input if isinstance(input, str) else ""]
    return any("\ud800" <= character <= "\udfff" for text in texts for character in text)


def _is_not_executable(result: CommandResult, file: str) -> bool:
    """Returns whether env(1) was not permitted to execute the file, and nothing else was run."""
    is_env_error = (
        result.stderr.startswith("env: ") and file in result.stderr and result.stderr.count("\n") == 1
    )
    return result.exit_code == _NOT_EXECUTABLE and is_env_error and not result.stdout


def _exec_result(result: CommandResult, most: int) -> util.ExecResult[str]:
    if result.status == "timeout":
        raise TimeoutError("the command was ended when its time was over")
    is_long = any(len(text.encode()) > most for text in (result.stdout, result.stderr))
    if is_long or result.status == "output-limit":
        # The error carries the output only up to the limit.
        limit = util.SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
        raise util.OutputLimitExceededError(limit, (result.stdout or result.stderr)[:most])
    return util.ExecResult(result.ok, result.shell_code, result.stdout, result.stderr)

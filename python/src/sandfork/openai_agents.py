"""A sandbox for the OpenAI Agents SDK: an agent's shell and files are in a session.

    from agents.run_config import RunConfig, SandboxRunConfig
    from sandfork.openai_agents import SandforkSandboxClient

    config = RunConfig(sandbox=SandboxRunConfig(client=SandforkSandboxClient()))

`docs/frameworks.md` lists the supported features of the SDK's sandboxes.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

from ._async import AsyncSandbox
from ._exceptions import FileNotFound, RequestError, SandforkError
from ._frameworks import LONGEST, MAX_PROGRAMS, NOT_FOUND, ROOMY, needed, read_anywhere, write_anywhere

with needed(__name__, "openai-agents", "the OpenAI Agents SDK", "agents"):
    from agents.sandbox import Manifest, errors
    from agents.sandbox import session as sdk
    from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
    from agents.sandbox.types import ExecResult, User

__all__ = ["SandforkSandboxClient", "SandforkSandboxClientOptions", "SandforkSandboxSession"]

_WORK = "/work"


class SandforkSandboxClientOptions(sdk.BaseSandboxClientOptions):
    """The configuration of a sandbox: arguments of `sandfork.AsyncSandbox`."""

    type: Literal["sandfork"] = "sandfork"
    policy: str | dict[str, Any] | None = None
    """A policy's name, its file, or a dict of its tables. The default is `standard` with higher limits: a
    day, 1 GiB of memory, 256 MiB of files."""
    packages: list[str] | None = None
    environment: str | None = None
    timeout: float | None = None
    """The default timeout of a command in seconds."""
    output: int = 10 << 20
    """The maximum number of output bytes of a command. A command that prints more is ended."""
    max_file_bytes: int = 100 << 20
    """The maximum size in bytes of a file or workspace to read."""


class SandforkSandboxSessionState(sdk.SandboxSessionState):
    type: Literal["sandfork"] = "sandfork"
    options: SandforkSandboxClientOptions


class SandforkSandboxSession(sdk.BaseSandboxSession):
    """A Sandfork session as a sandbox of the SDK. Its workspace is the work directory, `/work`."""

    state: SandforkSandboxSessionState

    def __init__(self, state: SandforkSandboxSessionState) -> None:
        self.state = state
        options = state.options
        policy = ROOMY if options.policy is None else options.policy
        self.sandbox = AsyncSandbox(policy, packages=options.packages, environment=options.environment)
        self._room = asyncio.Semaphore(MAX_PROGRAMS)
        # A session serves one file request at a time.
        self._turn = asyncio.Lock()
        self._mounts: set[Path] = set()

    async def _ensure_backend_started(self) -> None:
        await self.sandbox.__aenter__()

    async def _prepare_backend_workspace(self) -> None:
        await self._exec_checked_nonzero("mkdir", "-p", "--", self.state.manifest.root)
        await self._find_mounts()

    async def _find_mounts(self) -> None:
        """Finds host directories that the policy mounts below the workspace, such as a virtual environment. A
        snapshot neither contains nor replaces them."""
        root = self._workspace_root_path()
        result = await self._exec_checked_nonzero("cat", "/proc/self/mountinfo")
        places = [_place(line) for line in result.stdout.decode().splitlines()]
        self._mounts = {place.relative_to(root) for place in places if root in place.parents}

    def _persist_workspace_skip_relpaths(self) -> set[Path]:
        return super()._persist_workspace_skip_relpaths() | self._mounts

    def _workspace_resume_mount_skip_relpaths(self) -> set[Path]:
        return super()._workspace_resume_mount_skip_relpaths() | self._mounts

    async def _shutdown_backend(self) -> None:
        await self.sandbox.close()

    def _wrap_start_error(self, error: Exception) -> Exception:
        if not isinstance(error, SandforkError):
            return error
        root = Path(self.state.manifest.root)
        return errors.WorkspaceStartError(path=root, cause=error, message=str(error))

    async def running(self) -> bool:
        if self.sandbox.live:
            # The session may have ended since its last use.
            with suppress(SandforkError):
                async with self._turn:
                    await self.sandbox.files.stat(".")
        return self.sandbox.live

    def _should_compute_snapshot_fingerprint_on_persist(self) -> bool:
        # The SDK would copy a program into the sandbox for this, which cannot be executed there.
        return False

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        _check_user(user, "exec")
        return super()._prepare_exec_command(*command, shell=shell, user=None)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        options, argv = self.state.options, [str(part) for part in command]
        seconds = options.timeout if timeout is None else timeout
        try:
            async with self._room:
                result = await self.sandbox.commands.run(
                    argv,
                    cwd=self.state.manifest.root if self.state.workspace_root_ready else None,
                    env=await self.state.manifest.environment.resolve(),
                    timeout=LONGEST if seconds is None else seconds,
                    output=options.output,
                )
        except SandforkError as error:
            if isinstance(error, RequestError) and error.errno is not None:
                return ExecResult(stdout=b"", stderr=str(error).encode(), exit_code=NOT_FOUND)
            raise errors.ExecTransportError(command=argv, cause=error, message=str(error)) from error
        if result.status == "timeout":
            raise errors.ExecTimeoutError(command=argv, timeout_s=seconds)
        if result.status in ("lost", "output-limit"):
            why = result.why or f"it printed more than {options.output} bytes"
            raise errors.ExecTransportError(command=argv, message=f"the command was ended: {why}")
        stdout, stderr = result.stdout.encode(), result.stderr.encode()
        return ExecResult(stdout=stdout, stderr=stderr, exit_code=result.shell_code)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        _check_user(user, "read")
        place = await self._validate_path_access(path)
        most = self.state.options.max_file_bytes
        try:
            return io.BytesIO(await self._with_file(read_anywhere(self.sandbox, place.as_posix(), most)))
        except SandforkError as error:
            if isinstance(error, FileNotFound):
                raise errors.WorkspaceReadNotFoundError(path=place, cause=error) from error
            raise errors.WorkspaceArchiveReadError(path=place, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        _check_user(user, "write")
        place = await self._validate_path_access(path, for_write=True)
        content: object = data.read()
        if not isinstance(content, (bytes, bytearray, str)):
            raise errors.WorkspaceWriteTypeError(path=place, actual_type=type(content).__name__)
        content = content.encode() if isinstance(content, str) else bytes(content)
        try:
            await self._with_file(write_anywhere(self.sandbox, place.as_posix(), content))
        except SandforkError as error:
            raise errors.WorkspaceArchiveWriteError(path=place, cause=error) from error

    async def persist_workspace(self) -> io.IOBase:
        """Returns the workspace as a tar archive, which the guest's `tar` creates: it is untrusted."""
        # A guest may have renamed a directory that contains a mount.
        await self._find_mounts()
        skipped = sorted(path.as_posix() for path in self._persist_workspace_skip_relpaths())
        async with self._archive() as (root, archive):
            excluded = (f"--exclude=./{path}" for path in (*skipped, archive.name))
            command = ("tar", "-cf", archive, "-C", root, "--no-wildcards", *excluded, ".")
            await self._exec_checked_nonzero(*command)
            return await self.read(archive)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpacks a tar archive in the sandbox, with the guest's rights."""
        async with self._archive() as (root, archive):
            await self.write(archive, data)
            await self._exec_checked_nonzero("tar", "-xf", archive, "-C", root)

    @asynccontextmanager
    async def _archive(self) -> AsyncIterator[tuple[Path, Path]]:
        root = self._workspace_root_path()
        archive = root / f".sandfork-{os.urandom(8).hex()}.tar"
        try:
            yield root, archive
        finally:
            if await self.running():
                await self.rm(archive, recursive=True)

    async def _with_file(self, work: Any) -> Any:
        async with self._turn:
            return await self.sandbox._driver.complete(work)


class SandforkSandboxClient(sdk.BaseSandboxClient[SandforkSandboxClientOptions]):
    """Creates sessions. `resume` finds a live session in this process, or starts a new one from the
    snapshot."""

    backend_id = "sandfork"
    supports_default_options = True

    def __init__(self) -> None:
        # Weak references, because a garbage-collected session has ended.
        self._sessions: WeakValueDictionary[uuid.UUID, SandforkSandboxSession] = WeakValueDictionary()

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: SandforkSandboxClientOptions | None = None,
    ) -> sdk.SandboxSession:
        session_id = uuid.uuid4()
        state = SandforkSandboxSessionState(
            session_id=session_id,
            manifest=self._validate_manifest_for_create(_rooted(manifest or Manifest())),
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            options=options or SandforkSandboxClientOptions(),
        )
        return self._made(state)

    async def delete(self, session: sdk.SandboxSession) -> sdk.SandboxSession:
        await session.shutdown()
        return session

    async def resume(self, state: sdk.SandboxSessionState) -> sdk.SandboxSession:
        if not isinstance(state, SandforkSandboxSessionState):
            raise TypeError(f"the state is a {type(state).__name__}: give one of this client's sessions")
        state.assert_path_grants_rebound()
        found = self._sessions.get(state.session_id)
        if found is not None and await found.running():
            found._set_start_state_preserved(True)
            return self._wrap_session(found)
        state.workspace_root_ready = False
        return self._made(state)

    def deserialize_session_state(self, payload: dict[str, object]) -> sdk.SandboxSessionState:
        return self._deserialize_session_state_payload(payload, SandforkSandboxSessionState)

    def _made(self, state: SandforkSandboxSessionState) -> sdk.SandboxSession:
        try:
            session = self._sessions[state.session_id] = SandforkSandboxSession(state)
        except SandforkError as error:
            raise _unsupported("create", str(error)) from error
        return self._wrap_session(session)


def _rooted(manifest: Manifest) -> Manifest:
    if manifest.root == Manifest.model_fields["root"].default:
        return manifest.model_copy(update={"root": _WORK})
    if not Path(manifest.root).is_relative_to(_WORK):
        raise _unsupported("create", f"the manifest's root is {manifest.root!r}: choose one in {_WORK}")
    return manifest


def _place(line: str) -> Path:
    """Returns the mount point in a line of proc_pid_mountinfo(5)."""
    return Path(re.sub(r"\\([0-7]{3})", lambda escaped: chr(int(escaped[1], 8)), line.split(" ")[4]))


def _check_user(user: str | User | None, op: Literal["exec", "read", "write"]) -> None:
    if user is not None:
        raise _unsupported(op, "a sandbox has one user: leave out `user`")


def _unsupported(op: Any, message: str) -> errors.ConfigurationError:
    code = errors.ErrorCode.SANDBOX_CONFIG_INVALID
    return errors.ConfigurationError(message=message, error_code=code, op=op, context={})

"""The sandbox client of the OpenAI Agents SDK, as the SDK's own runner and tools use it."""

from __future__ import annotations

import asyncio
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="the SDK is tested with Python 3.11 and later")

from agents import Runner
from agents.run_config import RunConfig, SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent, errors
from agents.sandbox.entries import Dir, File
from agents.sandbox.manifest import Environment
from agents.sandbox.session import BaseSandboxClientOptions, SandboxSession, SandboxSessionState
from agents.sandbox.snapshot import LocalSnapshotSpec, NoopSnapshot
from agents.testing import ScriptedModel, assistant_message, function_call

from sandfork import _supervisor
from sandfork.openai_agents import SandforkSandboxClient, SandforkSandboxClientOptions

ENTRIES = {"in": Dir(children={"a.txt": File(content="é".encode())})}


async def output(session: SandboxSession, line: str) -> str:
    result = await session.exec(line)
    assert result.ok(), result.stderr
    return result.stdout.decode()


async def read(session: SandboxSession, path: str) -> bytes:
    with await session.read(Path(path)) as file:
        return file.read()


async def test_a_session_has_files_and_commands() -> None:
    client = SandforkSandboxClient()
    manifest = Manifest(entries=ENTRIES, environment=Environment(value={"WORD": "w"}))
    async with await client.create(manifest=manifest) as session:
        assert await session.running()
        assert await output(session, "cat in/a.txt; pwd; echo $WORD") == "é/work\nw\n"
        result = await session.exec("echo out; echo err >&2; kill -9 $$")
        assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 137)
        assert (await session.exec("no-such-program", shell=False)).exit_code == 127
        await session.write(Path("new/er/bytes"), io.BytesIO(b"\x00\xff"))
        assert await read(session, "/work/new/er/bytes") == b"\x00\xff"
        assert sorted(entry.path for entry in await session.ls(".")) == ["/work/in", "/work/new"]
        await session.mkdir("made", parents=True)
        await session.mv("new/er/bytes", "made/bytes")
        await session.rm("new", recursive=True)
        patch = {"type": "create_file", "path": "made/text", "diff": "+one\n+two\n"}
        await session.apply_patch([patch])
        patch = {"type": "update_file", "path": "made/text", "diff": "@@\n-two\n+2\n"}
        await session.apply_patch([patch])
        assert await output(session, "ls made; cat made/text") == "bytes\ntext\none\n2"
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("packed/empty"))
        archive.seek(0)
        await session.extract("some.tar", archive)
        assert await read(session, "packed/empty") == b""
    assert not await session.running()
    await client.delete(session)


async def test_failure_is_an_error_of_the_sdk() -> None:
    options = SandforkSandboxClientOptions(timeout=0.5, output=10_000, max_file_bytes=1000)
    client = SandforkSandboxClient()
    async with await client.create(options=options) as session:
        with pytest.raises(errors.WorkspaceReadNotFoundError):
            await session.read(Path("missing"))
        with pytest.raises(errors.WorkspaceArchiveReadError):
            await session.read(Path("."))
        await session.write(Path("long"), io.BytesIO(bytes(1001)))
        with pytest.raises(errors.WorkspaceArchiveReadError):
            await session.read(Path("long"))
        for path in ("../x", "/etc/passwd"):
            with pytest.raises(errors.InvalidManifestPathError):
                await session.write(Path(path), io.BytesIO(b""))
        with pytest.raises(errors.WorkspaceWriteTypeError):
            await session.write(Path("x"), _Reader())
        with pytest.raises(errors.ExecTimeoutError):
            await session.exec("sleep 60")
        with pytest.raises(errors.ExecTransportError, match="printed more than 10000 bytes"):
            await session.exec("yes", timeout=60)
        with pytest.raises(errors.ConfigurationError, match="one user"):
            await session.exec("true", user="root")
        with pytest.raises(errors.ConfigurationError, match="one user"):
            await session.read(Path("long"), user="root")
        assert await session.running()
        with pytest.raises(errors.ExecTransportError, match="NUL"):
            await session.exec("\0")
        await session._inner.sandbox.close()
        assert not await session.running()
        await serves_nothing(session, "closed")
    with pytest.raises(errors.WorkspaceStartError, match="closed"):
        await session.start()
    missing = SandforkSandboxClientOptions(policy={"python": {"interpreter": "/no/python"}})
    with pytest.raises(errors.WorkspaceStartError, match="/no/python"):
        await (await client.create(options=missing)).start()
    unknown = SandforkSandboxClientOptions(policy={"limits": {"walls": "1s"}})
    with pytest.raises(errors.ConfigurationError, match=r"limits\.walls"):
        await client.create(options=unknown)
    with pytest.raises(errors.ConfigurationError, match="/work"):
        await client.create(manifest=Manifest(root="/srv"))


async def serves_nothing(session: SandboxSession, why: str) -> None:
    with pytest.raises(errors.ExecTransportError, match=why):
        await session.exec("true")
    with pytest.raises(errors.WorkspaceArchiveReadError) as reading:
        await session.read(Path("a"))
    with pytest.raises(errors.WorkspaceArchiveWriteError) as writing:
        await session.write(Path("a"), io.BytesIO(b""))
    for raised in (reading, writing):
        assert why in str(raised.value.cause)


async def kill_worker(session: SandboxSession) -> None:
    sandbox = session._inner.sandbox
    worker = (await sandbox.run("import os\nos.getpid()")).value
    running = asyncio.create_task(session.exec("exec sleep 600"))
    while not await sandbox.commands.list():
        assert not running.done()
    # The command gets its input only after it was reported as started.
    line = f"read go; kill -KILL {worker}; exec sleep 600"
    assert (await sandbox.commands.run(line, stdin=b"go\n")).status == "lost"
    with pytest.raises(errors.ExecTransportError, match="the command was ended"):
        await running


async def test_a_session_that_has_ended_does_not_run(tmp_path: Path) -> None:
    client = SandforkSandboxClient()
    snapshot = LocalSnapshotSpec(base_path=tmp_path)
    session = await client.create(snapshot=snapshot)
    await session.start()
    await output(session, "echo kept > own")
    await session.stop()
    await output(session, "echo lost > own")
    await kill_worker(session)
    assert not await session.running()
    await serves_nothing(session, "signal 9")
    # No call has reported the end of this session.
    resumed = await client.resume(session.state)
    await resumed.start()
    assert await output(resumed, "cat own") == "kept\n"
    await kill_worker(resumed)
    async with await client.resume(resumed.state) as another:
        assert await output(another, "cat own") == "kept\n"
        assert _supervisor._shared is not None
        _supervisor._shared.process.kill()
        _supervisor._shared.process.wait()
        await serves_nothing(another, "supervisor")
        assert not await another.running()
        another.state.snapshot = NoopSnapshot(id="none")


class _Reader(io.RawIOBase):
    def read(self, size: int = -1) -> Any:
        return 1


async def test_state_resumes_its_session_or_creates_another(tmp_path: Path) -> None:
    client = SandforkSandboxClient()
    options = SandforkSandboxClientOptions(policy={"limits": {"memory": "300MiB"}}, timeout=60)
    snapshot = LocalSnapshotSpec(base_path=tmp_path)
    entries = {**ENTRIES, "passing": File(content=b"x", ephemeral=True)}
    session = await client.create(manifest=Manifest(entries=entries), options=options, snapshot=snapshot)
    async with session:
        await output(session, "echo more > in/more; chmod 600 in/more; ln -s more in/link")
        payload = client.serialize_session_state(session.state)
        same = await client.resume(client.deserialize_session_state(dict(payload)))
        await same.start()
        assert await output(same, "ls in") == "a.txt\nlink\nmore\n"
    payload = client.serialize_session_state(session.state)
    assert type(SandboxSessionState.parse(dict(payload))) is type(session.state)
    assert BaseSandboxClientOptions.parse(options.model_dump(mode="json")) == options
    for other in (client, SandforkSandboxClient()):
        resumed = await other.resume(other.deserialize_session_state(dict(payload)))
        async with resumed:
            assert await output(resumed, "stat -c %a in/more; cat in/link passing") == "600\nmore\nx"
            assert await output(resumed, "ls -A") == "in\npassing\n"
            assert resumed._inner.sandbox.info.limits["limits.memory"] == 300 << 20


@pytest.fixture
def shown() -> Iterator[Path]:
    """A directory of the host that the sandbox mounts below its workspace."""
    had_work = Path("/work").exists()
    try:
        Path("/work").mkdir(exist_ok=True)
        shown = Path(tempfile.mkdtemp(prefix="a b", dir="/work"))
    except OSError as error:
        pytest.skip(f"needs a directory in the host's /work: {error}")
    shown.chmod(0o777)
    yield shown
    shutil.rmtree(shown)
    if not had_work:
        Path("/work").rmdir()


@pytest.mark.parametrize("right", ["read", "write"])
async def test_snapshot_excludes_mounts_of_the_policy(tmp_path: Path, shown: Path, right: str) -> None:
    (shown / "of the host").write_bytes(bytes(10 << 20))
    policy = {"filesystem": {right: [str(shown)], "work_size": "4MiB"}}
    options = SandforkSandboxClientOptions(policy=policy)
    snapshot = LocalSnapshotSpec(base_path=tmp_path)
    client = SandforkSandboxClient()
    session = await client.create(manifest=Manifest(entries=ENTRIES), options=options, snapshot=snapshot)
    async with session:
        await output(session, "echo of the session > own")
        with await session._inner.persist_workspace() as archive, tarfile.open(fileobj=archive) as tar:
            assert sorted(tar.getnames()) == [".", "./in", "./in/a.txt", "./own"]
    async with await client.resume(session.state) as resumed:
        assert await output(resumed, "cat own") == "of the session\n"
        assert await output(resumed, f"ls '{shown}'") == "of the host\n"
    assert (shown / "of the host").stat().st_size == 10 << 20


async def test_commands_of_one_session_run_together() -> None:
    async with await SandforkSandboxClient().create() as session:

        async def work(number: int) -> bytes:
            await session.write(Path(f"{number}"), io.BytesIO(b"%d" % number))
            await output(session, f"printf {number} >> {number}")
            return await read(session, f"{number}")

        done = await asyncio.gather(*map(work, range(40)))
        assert done == [b"%d%d" % (number, number) for number in range(40)]


async def test_an_agent_works_in_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")

    def call(cmd: str) -> list[Any]:
        return [function_call("exec_command", {"cmd": cmd}, call_id=cmd)]

    model = ScriptedModel(
        [call("cat in/a.txt; echo 6 * 7"), call("python3 -c 'print(6 * 7)'"), [assistant_message("42")]]
    )
    agent = SandboxAgent(name="agent", model=model, default_manifest=Manifest(entries=ENTRIES))
    config = RunConfig(sandbox=SandboxRunConfig(client=SandforkSandboxClient()), tracing_disabled=True)
    result = await Runner.run(agent, "What is 6 * 7?", run_config=config)
    assert result.final_output == "42"
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    assert "é6 in 7" in outputs[0]
    assert "42" in outputs[1]

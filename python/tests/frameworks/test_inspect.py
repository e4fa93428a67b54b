"""inspect_ai's own suite, and what it does not ask."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("inspect_ai", reason="inspect_ai needs Python 3.11")

from inspect_ai import util
from inspect_ai.util._sandbox.limits import override_max_exec_output_size
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from sandfork import AsyncSandbox, PolicyError, SystemFailure, _supervisor
from sandfork._frameworks import ROOMY
from sandfork.inspect_ai import SandforkConfig, SandforkSandboxEnvironment

REFUSED = {"test_exec_as_user": "a sandbox has one user, who cannot make others"}


@pytest.fixture
def sandbox_env(request: pytest.FixtureRequest) -> Iterator[SandforkSandboxEnvironment]:
    """The sandbox of one check."""
    refused = REFUSED.get(request.node.originalname)
    if refused is not None:
        raises = util.SandboxUserUnsupportedError
        request.applymarker(pytest.mark.xfail(reason=refused, raises=raises, strict=True))
    sandbox = AsyncSandbox(ROOMY)
    # It opens with the check's first command, in the check's event loop.
    yield SandforkSandboxEnvironment(sandbox)
    sandbox._driver.close()


async def sample(config: SandforkConfig | str | None = None) -> SandforkSandboxEnvironment:
    kind = registry_find_sandboxenv("sandfork")
    (environment,) = (await kind.sample_init("task", config, {})).values()
    return environment.as_type(SandforkSandboxEnvironment)


async def test_sample_opens_and_closes_its_session() -> None:
    environment = await sample()
    assert (await environment.exec(["pwd"])).stdout == "/work\n"
    await SandforkSandboxEnvironment.sample_cleanup("task", None, {"default": environment}, False)
    await is_unavailable(environment.as_type(SandforkSandboxEnvironment), "closed")


async def test_a_sample_has_the_policy_of_its_configuration(tmp_path) -> None:
    file = tmp_path / "sandfork.toml"
    file.write_text('extends = "standard"\nenv.set = { WORD = "from a file" }\n')
    tables = {"env": {"set": {"WORD": "from a dict"}}}
    for config, word in ((str(file), "from a file"), (SandforkConfig(policy=tables), "from a dict")):
        spec = util.SandboxEnvironmentSpec("sandfork", config)
        # Inspect writes the specification to a log and reads it back.
        again = util.SandboxEnvironmentSpec.model_validate_json(spec.model_dump_json())
        environment = await sample(again.config)
        assert (await environment.exec(["sh", "-c", "echo $WORD"])).stdout == word + "\n"
        await environment.sandbox.close()
    with pytest.raises(PolicyError, match="limits.walls"):
        await sample(SandforkConfig(policy={"limits": {"walls": "1s"}}))


def test_an_evaluation_takes_each_form_of_configuration_and_setup(tmp_path) -> None:
    # In a process of its own, because inspect_ai leaves streams open.
    code = """
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox
from sandfork.inspect_ai import SandforkConfig

@solver
def echoes():
    async def solve(state, generate):
        state.output.completion = (await sandbox().exec(["sh", "-c", "cat set; echo $WORD"])).stdout
        return state
    return solve

python = "#!/usr/bin/env -S python3 -I\\nprint('set', file=open('set', 'w'))"
for config, setup in (
    ({"policy": {"env": {"set": {"WORD": "x"}}}}, python),
    ({"policy": "standard", "packages": []}, "echo set > set"),
):
    spec = SandboxEnvironmentSpec("sandfork", SandforkConfig(**config))
    samples = [Sample(input="i", target="x", setup=setup)]
    task = Task(samples, solver=echoes(), scorer=includes(), sandbox=spec)
    (log,) = eval(task, model="mockllm/model", display="none", log_dir="logs")
    print(log.status, log.samples[0].output.completion.strip())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["success", "set", "x", "success", "set"], done.stderr
    assert hash(SandforkConfig(policy={"a": {}})) == hash(SandforkConfig(policy={"a": {}}))


async def test_too_much_output_is_an_error_with_a_prefix(sandbox_env: SandforkSandboxEnvironment) -> None:
    for command in ("yes", "yes >&2", "head -c 1500 /dev/zero"):
        with override_max_exec_output_size(1000), pytest.raises(util.OutputLimitExceededError) as raised:
            await sandbox_env.exec(["sh", "-c", command])
        assert "1000 bytes" in str(raised.value)
        assert len(raised.value.truncated_output or "") <= 1000
    with override_max_exec_output_size(1000):
        both = await sandbox_env.exec(["sh", "-c", "head -c 900 /dev/zero; head -c 900 /dev/zero >&2"])
    assert (len(both.stdout), len(both.stderr)) == (900, 900)


async def test_a_program_that_does_not_exist_fails_as_in_a_shell(
    sandbox_env: SandforkSandboxEnvironment,
) -> None:
    result = await sandbox_env.exec(["no-such-program"])
    assert (result.success, result.returncode) == (False, 127)
    assert "no-such-program" in result.stderr


async def test_a_script_that_was_written_is_run_by_its_interpreter(
    sandbox_env: SandforkSandboxEnvironment,
) -> None:
    async def executed(text: str) -> util.ExecResult[str]:
        await sandbox_env.write_file("/tmp/script", text)
        return await sandbox_env.exec(["sh", "-c", 'exec env "$1"', "sh", "/tmp/script"])

    assert (await executed("#!/bin/cat")).stdout == "#!/bin/cat"
    assert (await executed("#! /bin/sh -e\nfalse\necho not")).returncode == 1
    assert (await executed("echo $0")).stdout == "/tmp/script\n"
    # A program that failed is not run again, and a script that the guest wrote is not run by its interpreter.
    failed = await executed("echo once; env /tmp/script-that-is-not-executable; exit 126")
    assert (failed.stdout, failed.returncode) == ("once\n", 126)
    denied = await sandbox_env.exec(["sh", "-c", "echo 'echo x' > /tmp/own; chmod +x /tmp/own; env /tmp/own"])
    assert (denied.stdout, denied.returncode) == ("", 126)


async def test_the_sandboxes_own_user_is_accepted(sandbox_env: SandforkSandboxEnvironment) -> None:
    name = (await sandbox_env.exec(["whoami"])).stdout.strip()
    assert (await sandbox_env.exec(["whoami"], user=name)).stdout.strip() == name
    with pytest.raises(util.SandboxUserUnsupportedError, match="root"):
        await sandbox_env.exec(["whoami"], user="root")


async def test_a_cancelled_command_is_ended(sandbox_env: SandforkSandboxEnvironment) -> None:
    await sandbox_env.exec(["ls", "-A"])
    command = asyncio.create_task(sandbox_env.exec(["sh", "-c", "touch begun; exec sleep 600"]))
    while "begun" not in (await sandbox_env.exec(["ls"])).stdout:
        assert not command.done()
    command.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await command
    while (await sandbox_env.exec(["pgrep", "sleep"])).success:
        pass


async def test_a_sandbox_that_ends_is_reported_as_unavailable(
    sandbox_env: SandforkSandboxEnvironment,
) -> None:
    await sandbox_env.exec(["mkfifo", "/tmp/pipe"])
    running = asyncio.create_task(sandbox_env.exec(["sleep", "600"]))
    writing = asyncio.create_task(sandbox_env.write_file("/tmp/pipe", "x"))
    while len(await sandbox_env.sandbox.commands.list()) < 2:
        assert not running.done()
    await sandbox_env.sandbox.run("import os; os.abort()")
    for lost in (running, writing):
        with pytest.raises(util.SandboxUnavailableError):
            await lost
    await is_unavailable(sandbox_env, "lost")


async def is_unavailable(environment: SandforkSandboxEnvironment, why: str) -> None:
    for use in (
        environment.exec(["true"]),
        environment.exec(["true"], user="root"),
        environment.write_file("made", "x"),
        environment.write_file("/tmp/made", "x"),
        environment.read_file("made"),
    ):
        with pytest.raises(util.SandboxUnavailableError, match=why):
            await use


async def test_a_failure_of_the_host_is_reported_as_unavailable(
    sandbox_env: SandforkSandboxEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sandbox_env.exec(["true"])

    def connect() -> None:
        raise SystemFailure("no connection to the supervisor: Too many open files")

    monkeypatch.setattr(_supervisor, "connect", connect)
    await is_unavailable(sandbox_env, "Too many open files")


async def test_a_supervisor_that_dies_is_reported_as_unavailable(
    sandbox_env: SandforkSandboxEnvironment,
) -> None:
    await sandbox_env.exec(["true"])
    assert _supervisor._shared is not None
    _supervisor._shared.process.kill()
    _supervisor._shared.process.wait()
    await is_unavailable(sandbox_env, "supervisor")


async def test_nul_in_a_command_is_an_error_for_the_model(sandbox_env: SandforkSandboxEnvironment) -> None:
    with pytest.raises(ValueError, match="embedded null byte"):
        await sandbox_env.exec(["echo", "a\0b"])


async def test_more_commands_than_a_session_takes_wait(sandbox_env: SandforkSandboxEnvironment) -> None:
    await sandbox_env.exec(["ls", "-A"])
    results = await asyncio.gather(*(sandbox_env.exec(["echo", str(n)]) for n in range(60)))
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(60)]


async def test_files_are_read_and_written_at_the_same_time(sandbox_env: SandforkSandboxEnvironment) -> None:
    before = await sandbox_env.exec(["ls", "-A"])
    paths = [f"{directory}/{n}" for directory in ("/tmp/a", "b", "/work/c") for n in range(4)]
    await asyncio.gather(*(sandbox_env.write_file(path, path) for path in paths))
    assert list(await asyncio.gather(*map(sandbox_env.read_file, paths))) == paths
    # The temporary copies are gone.
    after = await sandbox_env.exec(["ls", "-A"])
    assert {*after.stdout.split()} - {*before.stdout.split()} == {"b", "c"}


async def test_special_files_and_odd_paths_are_refused(sandbox_env: SandforkSandboxEnvironment) -> None:
    await sandbox_env.exec(["sh", "-c", "mkfifo pipe; ln -s /etc/hostname out; ln -s missing dangling"])
    for path in ("pipe", "/dev/zero", "a\0b"):
        with pytest.raises(OSError, match="(Invalid argument|NUL)"):
            await sandbox_env.read_file(path)
    with pytest.raises(FileNotFoundError):
        await sandbox_env.read_file("dangling")
    with pytest.raises(PermissionError):
        await sandbox_env.write_file("/usr/made", "x")
    await sandbox_env.write_file("-n", "a dash")
    assert await sandbox_env.read_file("-n") == "a dash"
    assert await sandbox_env.read_file("/proc/version", text=False)


async def test_signals_are_exit_codes(sandbox_env: SandforkSandboxEnvironment) -> None:
    result = await sandbox_env.exec(["sh", "-c", "kill -KILL $$"])
    assert result.returncode == 128 + signal.SIGKILL


async def test_model_gets_the_error_for_unsendable_text(sandbox_env: SandforkSandboxEnvironment) -> None:
    for command, text in ((["echo", "\ud800"], None), (["cat"], "\ud800"), (["echo", "x" * (2 << 20)], None)):
        result = await sandbox_env.exec(command, input=text)
        assert (result.success, result.returncode) == (False, 127)
        assert "surrogate" in result.stderr or "2097152" in result.stderr


async def test_missing_policy_file_names_the_configuration() -> None:
    with pytest.raises(PolicyError, match=r"SandforkConfig\(policy='standard'\)"):
        await SandforkSandboxEnvironment.sample_init("task", "/nowhere/standard", {})

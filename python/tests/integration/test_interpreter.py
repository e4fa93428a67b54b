"""The interpreter of a sandbox: the caller's, unless the policy names another."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import venv

import pytest

import sandfork

SOURCE = pathlib.Path(sandfork.__file__).parents[1]
# Prints the package that each kind of sandbox finds.
PROGRAM = """
import asyncio, sandfork, sys
code = "import only_here; only_here.WHERE"
print(sandfork.run(code).value)
with sandfork.Sandbox(sys.argv[1]) as sbx:
    print(sbx.run(code).value, sbx.info.python.environment == sys.prefix)
    sbx.restart()
    print(sbx.run(code).value)
(result,) = sandfork.map([code], policy=sandfork.Policy(limits={"wall": "20s"}))
print(result.value)

async def main():
    print((await sandfork.async_run(code, policy="strict")).value)
    async with sandfork.AsyncSandbox() as sbx:
        print((await sbx.run(code)).value)
    async for result in sandfork.async_map([code]):
        print(result.value)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A virtual environment with a package that no other environment has."""
    path = tmp_path_factory.mktemp("caller") / "env"
    venv.create(path, symlinks=True)
    (packages,) = path.glob("lib/python*/site-packages")
    (packages / "only_here.py").write_text("WHERE = 'the environment of the caller'\n")
    return path


def told(program: pathlib.Path, *arguments: str) -> list[str]:
    """The lines that `PROGRAM` prints under an interpreter that is not activated."""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    environ.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        [program, "-c", PROGRAM, *arguments],
        env=environ,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.splitlines()


def test_unactivated_environment_provides_its_packages(
    environment: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    own = tmp_path / "own.toml"
    own.write_text("[limits]\nwall = '20s'\n")
    here = "the environment of the caller"
    assert told(environment / "bin" / "python", str(own)) == [here, f"{here} True", *[here] * 5]


def test_policy_with_an_interpreter_takes_precedence(
    environment: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    base = tmp_path / "base.toml"
    base.write_text(f"[python]\ninterpreter = '{environment}'\n")
    own = tmp_path / "own.toml"
    own.write_text("extends = './base.toml'\n")
    for policy in (base, own, sandfork.Policy(python={"interpreter": environment})):
        execution = sandfork.run("import only_here, sys; sys.prefix", policy=policy)
        assert execution.value == str(environment)
    assert sandfork.run("import sys; sys.prefix").value == sys.prefix

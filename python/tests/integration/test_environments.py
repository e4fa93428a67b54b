"""Packages for guests, from an index on loopback (`tests/cli/index.py`)."""

from __future__ import annotations

import pathlib
import platform
import subprocess
import threading

import pytest

import sandfork
from sandfork import Environment, PolicyError, RequestError, Sandbox, SystemFailure, _binary

CODE = "import shapes; shapes.sides"


def test_packages_are_installed_at_the_first_use(index: int) -> None:
    assert sandfork.run(CODE, packages=["shapes==1.*"]).value == 3
    with Sandbox(packages=["shapes==1.*"]) as one, Sandbox(packages=["shapes"]) as other:
        assert (one.run(CODE).value, other.run(CODE).value) == (3, 4)
        assert one.info.python.environment != other.info.python.environment
    results = sandfork.map([CODE, CODE], packages=["shapes"])
    assert [result.value for result in results] == [4, 4]
    assert len(Environment.list()) == 2


def test_concurrently_opened_sessions_share_one_environment(index: int) -> None:
    values = []

    def begin() -> None:
        with Sandbox(packages=["shapes"]) as sandbox:
            values.append(sandbox.run(CODE).value)

    threads = [threading.Thread(target=begin) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [4, 4, 4]
    assert len(Environment.list()) == 1


async def test_packages_of_a_task(index: int) -> None:
    assert (await sandfork.async_run(CODE, packages=["shapes"])).value == 4
    async with sandfork.AsyncSandbox(packages=["shapes"]) as sandbox:
        assert (await sandbox.run(CODE)).value == 4


def test_environment_is_created_used_and_removed(index: int, tmp_path: pathlib.Path) -> None:
    made = Environment.create("forms", ["shapes==1.0"])
    assert made == Environment.create("forms", ["shapes==1.0"]) == Environment.get("forms")
    assert made.packages == {"shapes": "1.0", "colours": "1.5"}
    assert (made.requirements, made.version) == (("shapes==1.0",), platform.python_version())
    lock = tmp_path / "pylock.toml"
    lock.write_text(made.export(), encoding="utf-8")
    same = Environment.create("locked", lock=lock)
    assert same.packages == made.packages
    same.remove()
    with Sandbox(environment=made) as sandbox:
        assert sandbox.run(CODE).value == 3
        with pytest.raises(
            RequestError,
            match="`forms` is used by a sandbox, or kept by a process for its next one: end it first",
        ):
            made.remove()
    assert sandfork.run(CODE, environment="forms").value == 3


def test_failed_installation_is_reported(index: int) -> None:
    with pytest.raises(SystemFailure, match="`absent` is not found: the index has no such version"):
        Sandbox(packages=["absent"])
    with pytest.raises(SystemFailure, match="which leads out of its environment; nothing was installed"):
        Environment.create("climber", ["climber"])
    with pytest.raises(PolicyError, match="there is no environment `absent`: make it with"):
        Sandbox(environment="absent")
    with pytest.raises(PolicyError, match="are not installed for .*: `sandfork env create --packages"):
        Sandbox({"python": {"packages": ["shapes"]}})
    with pytest.raises(PolicyError, match="is not a package: write its name"):
        Sandbox(packages=["shapes @ https://example.org/shapes.whl"])
    with pytest.raises(RequestError, match="give `packages` or `environment`"):
        Sandbox(packages=["shapes"], environment="forms")
    with pytest.raises(RequestError, match="packages is a str: give a list of strings"):
        Sandbox(packages="shapes")
    with pytest.raises(RequestError, match="not the name of an environment"):
        Environment.create("a b", ["shapes"])
    with pytest.raises(RequestError, match="5 is no text"):
        Environment.create(5)  # type: ignore[arg-type]
    assert Environment.list() == []


def test_packages_are_added_to_a_running_session(index: int) -> None:
    with Sandbox(packages=["colours"], can_install=True) as sandbox:
        sandbox.run("import colours; before = colours")
        assert sandbox.run("import shapes").error.name == "ModuleNotFoundError"
        sandbox.install("shapes==1.0")
        assert sandbox.run("import shapes; shapes.sides").value == 3
        # Modules that were imported stay the same objects, and no directory is in `sys.path` twice.
        assert sandbox.run("import colours, sys; colours is before").value is True
        assert sandbox.run("len([path for path in sys.path if 'site-packages' in path])").value == 2
        assert sandbox.run("'path' in globals()").value is False
        with pytest.raises(SystemFailure, match="`colours<1` is not found|conflict"):
            sandbox.install("colours<1")
        before = sandbox.run("sys.path").value
        with pytest.raises(SystemFailure, match="Cannot install shapes==2.0"):
            sandbox.install("shapes==2.0")
        # The installed version satisfies the requirement.
        sandbox.install("shapes")
        assert sandbox.run("shapes.sides").value == 3
        assert sandbox.run("sys.path").value == before
        sandbox.install("shapes==1.0")
        sandbox.restart()
        assert sandbox.run("import shapes").error.name == "ModuleNotFoundError"
        sandbox.install("shapes==1.0")
        assert sandbox.run("import shapes; shapes.sides").value == 3
        # `env prune` removes no package that a session uses, and the session's packages are no environment.
        subprocess.run([_binary.find(), "env", "prune", "--packages"], check=True)
        assert sandbox.run("import shapes.later", timeout=25).error.name == "ModuleNotFoundError"
        assert sandbox.run("import importlib; importlib.reload(shapes).sides").value == 3
        assert [one.requirements for one in Environment.list()] == [("colours",)]


async def test_packages_are_added_to_a_task_session(index: int) -> None:
    async with sandfork.AsyncSandbox(can_install=True) as sandbox:
        await sandbox.install("shapes", "colours")
        assert (await sandbox.run(CODE)).value == 4


def test_packages_require_permission(index: int) -> None:
    with Sandbox() as sandbox:
        # The check comes before any lookup: the index has no such package.
        with pytest.raises(RequestError, match="open it with `can_install=True`"):
            sandbox.install("nowhere-to-be-found")
        assert sandbox.run("import shapes").error.name == "ModuleNotFoundError"
        with pytest.raises(RequestError, match="no package is named"):
            sandbox.install()
    # A session cannot import packages that another one installed.
    with Sandbox(can_install=True) as one, Sandbox(can_install=True) as other:
        one.install("shapes")
        assert other.run("import shapes").error.name == "ModuleNotFoundError"

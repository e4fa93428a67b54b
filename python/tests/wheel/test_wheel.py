"""The wheel works on its own with every way of installation."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import venv
import zipfile

import pytest

CODE = """
import os, sandfork
from sandfork import _binary
print(_binary.find())
execution = sandfork.run("print(1)")
print(execution.logs.stdout, os.path.dirname(sandfork.__file__))
"""


def environment(**more: str) -> dict[str, str]:
    """An environment without the checkout's program and without one on PATH."""
    kept = {"HOME": os.environ.get("HOME", "/"), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**kept, **more}


def pip(python: pathlib.Path | str, wheel: pathlib.Path, *options: str, **more: str) -> None:
    command = [python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*command, *options, wheel], env=environment(**more), check=True)


def check(python: pathlib.Path | str, program: pathlib.Path, **more: str) -> None:
    """The package finds the program that came with it, and runs code."""
    command = [python, "-W", "error", "-c", CODE]
    told = subprocess.run(command, env=environment(**more), stdout=subprocess.PIPE, text=True, check=True)
    found, ran = told.stdout.splitlines()
    assert os.path.realpath(found) == os.path.realpath(program)
    assert ran.startswith("['1\\n'] ")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The interpreter of a new virtual environment."""
    place = tmp_path_factory.mktemp("venv")
    venv.create(place, with_pip=True)
    return place / "bin" / "python"


def test_the_wheel_has_the_program_and_the_package(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"sandfork/__init__.py", "sandfork/py.typed", "sandfork/_values/decode.py"} <= names
    assert any(name.endswith(".data/scripts/sandfork") for name in names)
    assert not any("test" in name for name in names)


def test_it_is_installed_into_a_directory(
    wheel: pathlib.Path, python: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    pip(python, wheel, "--target", str(tmp_path))
    check(python, tmp_path / "bin" / "sandfork", PYTHONPATH=str(tmp_path))


def test_it_is_installed_for_a_user(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    home = str(tmp_path)
    pip(base, wheel, "--user", "--break-system-packages", PYTHONUSERBASE=home) if _is_managed(base) else pip(
        base, wheel, "--user", PYTHONUSERBASE=home
    )
    check(base, tmp_path / "bin" / "sandfork", PYTHONUSERBASE=home)


def test_it_is_installed_into_a_virtual_environment(wheel: pathlib.Path, python: pathlib.Path) -> None:
    pip(python, wheel)
    check(python, python.parent / "sandfork")


def _is_managed(python: str) -> bool:
    """Whether the interpreter's environment is externally managed (PEP 668)."""
    code = "import os, sysconfig; print(os.path.exists(sysconfig.get_path('stdlib') + '/EXTERNALLY-MANAGED'))"
    return subprocess.run([python, "-c", code], stdout=subprocess.PIPE, check=True).stdout == b"True\n"

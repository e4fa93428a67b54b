"""Guests that may write to directories from which the caller imports modules."""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

import sandfork
from sandfork import AsyncSandbox, HostError, Policy, Sandbox

SOURCE = pathlib.Path(sandfork.__file__).parents[1]

# The guest writes a module, and returns a value whose type the caller imports from it. With `unkept`, the
# caller does not tell the supervisor its import path, so nothing protects it.
AGENT = """
import os, sys
import sandfork
from sandfork import _supervisor

kept, writable, act, *added = sys.argv[1:]
sys.path[:0] = added
if kept == "unkept":
    _supervisor.import_paths = list
with sandfork.Sandbox({"filesystem": {"write": [writable]}}) as sbx:
    execution = sbx.run("import fractions, os, shutil, zipfile\\n" + act + "\\nfractions.Fraction(1, 3)")
    assert execution.error is None, execution.error
    print("caller", os.getpid(), flush=True)
    execution.value
"""
PLANTED = "import os\nprint('guest', os.getpid(), flush=True)\nFraction = pow\n"


def writing(path: pathlib.Path) -> str:
    """The code with which a guest writes the module."""
    return f"os.makedirs({str(path.parent)!r}, exist_ok=True)\nopen({str(path)!r}, 'w').write({PLANTED!r})"


class Place:
    """A directory of the caller's that contains one to which guests may write."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.writable = path / "writable"
        self.writable.mkdir()
        os.chmod(self.writable, 0o777)
        self.agent = path / "agent.py"
        self.act = writing(self.writable / "fractions.py")
        self.added: tuple[object, ...] = ()
        self.start: tuple[object, ...] = (self.agent,)
        self.entry = self.writable

    def run(self, kept: str) -> tuple[str, str]:
        """The output of the caller."""
        self.agent.write_text(AGENT)
        command = [sys.executable, *self.start, kept, self.writable, self.act, *self.added]
        environ = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            list(map(str, command)),
            cwd=self.writable,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout, done.stderr


def script(place: Place) -> None:
    """Imports from the directory of the caller's script."""
    place.agent = place.writable / "agent.py"
    place.start = (place.agent,)


def current(place: Place) -> None:
    """Imports from the current directory, as `python -c` and notebooks do."""
    place.start = ("-c", AGENT)


def above(place: Place) -> None:
    """Imports from a directory inside a writable one."""
    lib = place.writable / "project" / "lib"
    lib.mkdir(parents=True)
    os.chmod(lib, 0o777)
    place.act, place.added, place.entry = writing(lib / "fractions.py"), (lib,), lib


def link(place: Place) -> None:
    """A writable directory with a link through which modules are imported."""
    (place.path / "lib").mkdir()
    (place.writable / "to_lib").symlink_to(place.path / "lib")
    (place.path / "named").symlink_to("writable/to_lib")
    place.entry = place.writable / "to_lib"
    new = place.writable / "new"
    place.act = f"{writing(new / 'fractions.py')}\nos.replace({str(new)!r}, {str(new)!r} + '2')"
    place.act += f"\nos.unlink({str(place.entry)!r})\nos.symlink('new2', {str(place.entry)!r})"
    place.added = (place.path / "named",)


def missing(place: Place) -> None:
    """A directory that does not exist yet."""
    place.entry = place.writable / "not" / "yet"
    place.act, place.added = writing(place.entry / "fractions.py"), (place.entry,)
    # The message names the first component that does not exist.
    place.entry = place.writable / "not"


def archive(place: Place) -> None:
    """An archive of modules."""
    place.entry = place.writable / "lib.zip"
    with zipfile.ZipFile(place.entry, "w") as modules:
        modules.writestr("other.py", "")
    os.chmod(place.entry, 0o666)
    place.act = f"zipfile.ZipFile({str(place.entry)!r}, 'w').writestr('fractions.py', {PLANTED!r})"
    place.added = (place.entry,)


@pytest.mark.parametrize("way", [script, current, above, link, missing, archive])
def test_guest_cannot_inject_a_module_into_its_caller(tmp_path: pathlib.Path, way: object) -> None:
    place = Place(tmp_path)
    assert callable(way)
    way(place)
    said, errors = place.run("kept")
    assert said == ""
    sentence = (
        f"{place.writable} cannot be writable, because guests could replace {place.entry}, from which the "
        "caller imports modules: make only a data directory in it writable"
    )
    assert sentence in errors
    # Without the protection, the caller runs the guest's code.
    said, errors = place.run("unkept")
    caller, guest = said.splitlines()
    assert caller.replace("caller", "guest") == guest, errors


def test_data_below_an_import_path_may_be_writable(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chmod(data, 0o777)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    with Sandbox(Policy(filesystem={"write": ["data"]})) as sbx:
        assert sbx.run(f"open({str(data / 'out')!r}, 'w').write('1')").value == 1
    assert (data / "out").read_text() == "1"


@pytest.mark.parametrize("module", ["code", "tzdata"])
def test_no_writable_directory_precedes_a_module(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    (tmp_path / module).mkdir()
    monkeypatch.chdir(tmp_path)
    policy = Policy(filesystem={"write": [module]})
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        with pytest.raises(HostError, match=f"guests could make it the module `{module}`"):
            Sandbox(policy)
    # Python finds its own `code` first.
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    if module == "code":
        Sandbox(policy).close()


def test_every_opening_checks_the_current_import_path(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(filesystem={"write": [tmp_path]})
    os.chmod(tmp_path, 0o777)

    async def opened() -> object:
        async with AsyncSandbox(policy) as sbx:
            return (await sbx.run("1")).value

    def session() -> object:
        with Sandbox(policy) as sbx:
            return sbx.run("1").value

    ways = (
        session,
        lambda: sandfork.run("1", policy=policy).value,
        lambda: next(iter(sandfork.map(["1"], policy=policy))).value,
        lambda: asyncio.run(opened()),
        lambda: asyncio.run(sandfork.async_run("1", policy=policy)).value,
    )
    for way in ways:
        assert way() == 1
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path / "lib")
            with pytest.raises(HostError, match="from which the caller imports modules"):
                way()
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setattr(sys, "path", [*sys.path, "", b"bytes", None])
            with pytest.raises(HostError, match="from which the caller imports modules"):
                way()
        assert way() == 1

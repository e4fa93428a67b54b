"""The package as a whole."""

from __future__ import annotations

import inspect
import pathlib
import re
import subprocess
import sys

import sandfork
from sandfork import _exceptions

PACKAGE = pathlib.Path(sandfork.__file__).parent
REPOSITORY = pathlib.Path(__file__).parents[2]


def test_documented_exception_tree_matches_the_classes() -> None:
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in (_exceptions.__doc__ or "").splitlines():
        found = re.match(r"    ((?:[│ ]   )*(?:[├└]── )?)([A-Z]\w+)", line)
        if found:
            depth = len(found.group(1)) // 4
            del above[depth:]
            drawn[found.group(2)] = above[-1] if above else "Exception"
            above.append(found.group(2))
    classes = {
        name: kind
        for name, kind in vars(_exceptions).items()
        if inspect.isclass(kind) and issubclass(kind, sandfork.SandforkError)
    }
    assert drawn == {name: kind.__bases__[0].__name__ for name, kind in classes.items()}
    assert all(kind.__doc__ for kind in classes.values())
    assert classes.keys() <= set(sandfork.__all__)


def test_every_public_name_is_documented_with_its_module() -> None:
    assert sorted(sandfork.__all__) == sandfork.__all__
    for name in sandfork.__all__:
        public = getattr(sandfork, name)
        assert public.__module__ == "sandfork", name
        assert public.__doc__, name
        if inspect.isclass(public):
            for attribute, value in vars(public).items():
                is_method = inspect.isfunction(value) and not attribute.startswith("_")
                assert not is_method or value.__doc__, f"{name}.{attribute}"


def test_both_interfaces_have_the_same_arguments() -> None:
    pairs = [
        (sandfork.Sandbox, sandfork.AsyncSandbox),
        (sandfork.Files, sandfork.AsyncFiles),
    ]
    for blocking, asynchronous in pairs:
        names = {name for name in vars(blocking) if not name.startswith("_")}
        assert names == {name for name in vars(asynchronous) if not name.startswith("_")}
        for name in (*names, "__init__"):
            one, other = getattr(blocking, name), getattr(asynchronous, name)
            if name != "__init__" or blocking is sandfork.Sandbox:
                assert _parameters(one) == _parameters(other), name
    assert _parameters(sandfork.run) == _parameters(sandfork.async_run)
    blocking, asynchronous = (
        inspect.signature(face).parameters for face in (sandfork.map, sandfork.async_map)
    )
    # `async_map` also accepts an async iterable.
    tasks, *others = blocking.values()
    async_tasks, *async_others = asynchronous.values()
    assert (tasks.name, others) == (async_tasks.name, async_others)


def _parameters(function: object) -> object:
    return inspect.signature(function).parameters if inspect.isfunction(function) else None


def test_package_and_program_have_the_same_version() -> None:
    manifest = (REPOSITORY / "Cargo.toml").read_text()
    found = re.search(r'^version = "(.*)"$', manifest, re.M)
    assert found is not None
    assert sandfork.__version__ == found.group(1)


def test_values_are_those_of_the_guest() -> None:
    """Each file is a link, rather than the directory, because a wheel would not follow that."""
    theirs = {path.name: path for path in (REPOSITORY / "crates/worker/guest/values").glob("*.py")}
    ours = {path.name: path for path in (PACKAGE / "_values").glob("*.py")}
    assert ours.keys() == theirs.keys()
    for name, path in ours.items():
        assert path.is_symlink()
        assert path.resolve() == theirs[name].resolve()


def test_asyncio_is_imported_on_demand() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import sandfork\n"
        "assert 'asyncio' not in sys.modules and 'AsyncSandbox' in dir(sandfork)\n"
        "from sandfork import AsyncSandbox, async_run\n"
        "assert AsyncSandbox.__module__ == async_run.__module__ == 'sandfork'\n"
        "assert not hasattr(sandfork, 'Nothing')\n"
    )
    subprocess.run([sys.executable, "-I", "-W", "error", "-c", code], check=True)


def test_package_is_typed_without_dependencies() -> None:
    assert (PACKAGE / "py.typed").exists()
    code = (
        f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); import sandfork\n"
        "found = {name.partition('.')[0] for name, module in sys.modules.items()"
        " if getattr(module, '__file__', None) and 'site-packages' in module.__file__}\n"
        "print(found)"
    )
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", code], stdout=subprocess.PIPE, check=True
    )
    assert told.stdout == b"set()\n"

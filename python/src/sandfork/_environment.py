"""Package environments for guests."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _binary
from ._exceptions import RequestError, SystemFailure

# The exit code of the command for errors that the caller can correct.
_USAGE = 2


@dataclass(frozen=True)
class Environment:
    """Packages for guests, which are installed in a sandbox and kept read-only for all later sandboxes.

    science = Environment.create("science", ["numpy", "pandas==2.2.*"])
    with Sandbox(environment=science) as sbx:
        sbx.run("import pandas")
    """

    name: str
    path: str
    """The directory, which has the same path on the host and for guests."""
    version: str
    """The version of its interpreter."""
    requirements: tuple[str, ...]
    """The requirements with which it was created."""
    packages: Mapping[str, str] = field(hash=False)
    """The version of each package."""
    size: int
    """The size of its files in bytes."""

    @classmethod
    def create(
        cls,
        name: str,
        packages: Sequence[str] = (),
        *,
        requirements: str | os.PathLike[str] | None = None,
        lock: str | os.PathLike[str] | None = None,
        python: str | os.PathLike[str] | None = None,
        index_url: str | None = None,
        allow_hosts: Sequence[str] = (),
        allow_build: bool = False,
    ) -> Environment:
        """Creates an environment, or returns an existing one with the same inputs.

        - `packages`: packages in the syntax of a requirements file.
        - `requirements`, `lock`: a requirements file, or a `pylock.toml`, instead of `packages`.
        - `python`: the interpreter; by default the one that runs this process.
        - `index_url`: the index, instead of the one that pip is configured with.
        - `allow_hosts`: hosts from which the index serves its files, and hosts on a private network that
          only a requirements file names.
        - `allow_build`: builds source distributions of packages without a wheel. Their code runs in a
          sandbox.

        Raises `RequestError` for errors that the caller can correct, and `SystemFailure` if the packages
        cannot be installed. On an error, nothing is left behind.
        """
        if isinstance(packages, str):
            raise RequestError("packages is a text: give a list of texts")
        options = [] if requirements is None else ["--requirements", os.fspath(requirements)]
        options += [] if lock is None else ["--lock", os.fspath(lock)]
        options += ["--python", os.fspath(python or sys.executable)]
        options += [] if index_url is None else ["--index-url", index_url]
        options += ["--allow-build"] if allow_build else []
        for host in allow_hosts:
            options += ["--allow-host", host]
        _command("create", "--json", *options, "--", name, *packages)
        return cls.get(name)

    @classmethod
    def get(cls, name: str) -> Environment:
        """Returns the environment of this name. Raises `RequestError` if it does not exist."""
        return cls._of(json.loads(_command("show", "--json", "--", name)))

    @classmethod
    def list(cls) -> builtins.list[Environment]:
        """Lists all environments of this user, by name."""
        return [cls._of(described) for described in json.loads(_command("list", "--json"))]

    @classmethod
    def _of(cls, described: Any) -> Environment:
        return cls(
            name=described["name"],
            path=described["path"],
            version=described["version"],
            requirements=tuple(described["requirements"]),
            packages=described["packages"],
            size=described["bytes"],
        )

    def export(self) -> str:
        """Returns the lock as the text of a `pylock.toml`: each wheel with its URL and its SHA-256."""
        return _command("export", "--", self.name)

    def remove(self) -> None:
        """Removes the environment. Raises `RequestError` if a sandbox uses it."""
        _command("remove", "--", self.name)


def installation_cell(executable: str, packages: Sequence[str], there: Sequence[str]) -> str:
    """Installs the packages that this interpreter's environment lacks, without changing the version of
    existing ones. Returns a cell that makes them importable in a session: its value is `True`, or a list of
    packages that the session has in addition and that must be passed as `there`."""
    options = [f"--beside={package}" for package in there]
    made = _command(
        "create", "--json", "--packages", "--add", "--python", executable, *options, "--", *packages
    )
    cell: str = json.loads(made)["cell"]
    return cell


def _command(*arguments: str) -> str:
    """Runs `sandfork env` and returns its output."""
    for argument in arguments:
        if not isinstance(argument, str):
            raise RequestError(f"{argument!r} is no text: give names, packages and hosts as texts")
    done = subprocess.run(
        [_binary.find(), "env", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode == 0:
        return done.stdout
    message = (
        done.stderr.strip().removeprefix("sandfork: ") or f"`sandfork env` ended with code {done.returncode}"
    )
    raise (RequestError if done.returncode == _USAGE else SystemFailure)(message)

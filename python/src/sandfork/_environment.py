"""Environments of packages for guests."""

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

# The exit code of the command for what its caller can correct.
_USAGE = 2


@dataclass(frozen=True)
class Environment:
    """Packages that guests have, installed in a sandbox and kept read-only for all later sandboxes.

    science = Environment.create("science", ["numpy", "pandas==2.2.*"])
    with Sandbox(environment=science) as sbx:
        sbx.run("import pandas")
    """

    name: str
    path: str
    """Where it is, on the host and for guests."""
    version: str
    """The version of its interpreter."""
    requirements: tuple[str, ...]
    """What was asked for."""
    packages: Mapping[str, str] = field(hash=False)
    """The version of each package."""
    size: int
    """The bytes of its files."""

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
        """Makes an environment, or finds the one that was made in the same way.

        - `packages`: as in a requirements file.
        - `requirements`, `lock`: a requirements file, or a `pylock.toml`, in their place.
        - `python`: the interpreter; the default is the one that runs this process.
        - `index_url`: the index, in place of the one that pip is configured with.
        - `allow_hosts`: hosts to which the index sends for its files, and those on a private network that
          only a requirements file names.
        - `allow_build`: builds source distributions where there is no wheel. Their code runs in a sandbox.

        Raises `RequestError` for what the caller can correct, and `SystemFailure` if the packages cannot be
        installed. Nothing is left then.
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
        """The environment of this name. Raises `RequestError` if there is none."""
        return cls._of(json.loads(_command("show", "--json", "--", name)))

    @classmethod
    def list(cls) -> builtins.list[Environment]:
        """All environments of this user, by name."""
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
        """Its lock, as the text of a `pylock.toml`: each wheel with its URL and its SHA-256."""
        return _command("export", "--", self.name)

    def remove(self) -> None:
        """Removes it. Raises `RequestError` if a sandbox uses it."""
        _command("remove", "--", self.name)


def cell_that_adds(executable: str, packages: Sequence[str], there: Sequence[str]) -> str:
    """Installs what the environment of this interpreter lacks of packages, so that those that are there keep
    their version. Returns what a session runs to import them: its value is `True`, or which other packages
    are there."""
    options = [f"--beside={package}" for package in there]
    made = _command(
        "create", "--json", "--packages", "--add", "--python", executable, *options, "--", *packages
    )
    cell: str = json.loads(made)["cell"]
    return cell


def _command(*arguments: str) -> str:
    """What `sandfork env` prints."""
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
    said = (
        done.stderr.strip().removeprefix("sandfork: ") or f"`sandfork env` ended with code {done.returncode}"
    )
    raise (RequestError if done.returncode == _USAGE else SystemFailure)(said)

"""Policies built in Python."""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Union

from . import _toml
from ._exceptions import PolicyError

_Path = Union[str, "os.PathLike[str]"]


class PythonTable(TypedDict, total=False):
    """`[python]`: the guest's interpreter."""

    interpreter: _Path
    preload: Sequence[str]
    path: Sequence[_Path]
    fresh: bool


class ImportsTable(TypedDict, total=False):
    """`[imports]`: what guest code may import. For good messages; it is no wall."""

    allow: Sequence[str]


class FilesystemTable(TypedDict, total=False):
    """`[filesystem]`: what is shown of the host's files, and how much room there is."""

    system: str
    proc: bool
    read: Sequence[_Path]
    write: Sequence[_Path]
    work_size: str
    work_inodes: int
    tmp_size: str
    tmp_inodes: int


class NetworkTable(TypedDict, total=False):
    """`[network]`."""

    mode: str


# `set` and `pass`, of which one is a keyword.
EnvTable = TypedDict("EnvTable", {"set": Mapping[str, str], "pass": Sequence[str]}, total=False)


class StdioTable(TypedDict, total=False):
    """`[stdio]`: what the guest reads on its standard input."""

    stdin: str


class LimitsTable(TypedDict, total=False):
    """`[limits]`: texts with units, such as `"2s"` and `"256MiB"`, and counts."""

    wall: str
    cpu: str
    memory: str
    pids: int
    open_files: int
    file_size: str
    output: str
    cores: float


class SyscallsTable(TypedDict, total=False):
    """`[syscalls]`: system calls beyond the preset, and taken away from it."""

    allow: Sequence[str]
    deny: Sequence[str]


class AssuranceTable(TypedDict, total=False):
    """`[assurance]`: the least level under which a run may start."""

    require: str


class SessionTable(TypedDict, total=False):
    """`[session]`: after which time a session ends; `"never"` for none."""

    idle: str
    age: str


# Keys by the kind of value that each takes.
_KEYS: dict[str, dict[str, str]] = {
    "python": {"interpreter": "path", "preload": "texts", "path": "paths", "fresh": "boolean"},
    "imports": {"allow": "texts"},
    "filesystem": {
        "system": "text",
        "proc": "boolean",
        "read": "paths",
        "write": "paths",
        "work_size": "size",
        "work_inodes": "count",
        "tmp_size": "size",
        "tmp_inodes": "count",
    },
    "network": {"mode": "text"},
    "env": {"set": "table", "pass": "texts"},
    "stdio": {"stdin": "text"},
    "limits": {
        "wall": "duration",
        "cpu": "duration",
        "memory": "size",
        "pids": "count",
        "open_files": "count",
        "file_size": "size",
        "output": "size",
        "cores": "number",
    },
    "syscalls": {"allow": "texts", "deny": "texts"},
    "assurance": {"require": "text"},
    "session": {"idle": "duration", "age": "duration"},
}
_WANTED = {
    "text": "a text",
    "path": "a path",
    "texts": "a list of texts",
    "paths": "a list of paths",
    "table": "a dict of texts",
    "boolean": "True or False",
    "count": "a whole number",
    "number": "a number",
    "size": 'a text with a unit, such as "256MiB"',
    "duration": 'a text with a unit, such as "2s"',
}


class Policy:
    """What guest code may do, built in Python instead of a TOML file.

    The keyword arguments are the tables of a policy file, with the same keys and values
    (`docs/policy.md` in the repository). What is not given is as in `extends`, or in `standard`.
    Unknown keys and values of a wrong type are refused here; whether a value is in range, and whether
    the host can keep it, the supervisor says when a sandbox is made. Relative paths start from the
    current directory of that moment.
    """

    __slots__ = ("_document",)

    def __init__(
        self,
        *,
        extends: _Path | None = None,
        description: str | None = None,
        python: PythonTable | None = None,
        imports: ImportsTable | None = None,
        filesystem: FilesystemTable | None = None,
        network: NetworkTable | None = None,
        env: EnvTable | None = None,
        stdio: StdioTable | None = None,
        limits: LimitsTable | None = None,
        syscalls: SyscallsTable | None = None,
        assurance: AssuranceTable | None = None,
        session: SessionTable | None = None,
    ) -> None:
        document: dict[str, Any] = {}
        if extends is not None:
            document["extends"] = _checked("extends", "path", extends)
        if description is not None:
            document["description"] = _checked("description", "text", description)
        tables: dict[str, Mapping[str, Any] | None] = {
            "python": python,
            "imports": imports,
            "filesystem": filesystem,
            "network": network,
            "env": env,
            "stdio": stdio,
            "limits": limits,
            "syscalls": syscalls,
            "assurance": assurance,
            "session": session,
        }
        for name, table in tables.items():
            if table is not None:
                document[name] = _checked_table(name, table)
        self._document = document

    def tables(self) -> dict[str, Any]:
        """A copy of what it is made of: `Policy(**policy.tables()) == policy`."""
        return copy.deepcopy(self._document)

    def to_toml(self) -> str:
        """The policy file."""
        return _toml.dumps(self._document)

    def dump(self, path: _Path) -> None:
        """Writes the policy file. Relative paths in it then start from its directory."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_toml())

    def __eq__(self, other: object) -> bool:
        return self._document == other._document if isinstance(other, Policy) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_toml())

    def __repr__(self) -> str:
        return f"Policy({', '.join(f'{name}={value!r}' for name, value in self._document.items())})"


def _checked_table(name: str, table: object) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise PolicyError(f"{name} is of type {type(table).__name__}: give a dict of its keys")
    keys = _KEYS[name]
    checked = {}
    for key, value in table.items():
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"{name} has {', '.join(sorted(keys))}"
            raise PolicyError(f"{name}.{key}: unknown key: {remedy}")
        checked[key] = _checked(f"{name}.{key}", keys[key], value)
    return checked


def _checked(key: str, kind: str, value: object) -> Any:
    """The value as it is written, if it is of its key's kind."""
    plain = _plain(value, paths=kind.startswith("path"))
    if _is_of_kind(kind, plain):
        return plain
    raise PolicyError(f"{key}: {value!r} is of type {type(value).__name__}: give {_WANTED[kind]}")


def _plain(value: object, *, paths: bool) -> object:
    """A copy, made of what TOML has: a policy does not change with the lists that it was made from."""
    if paths and isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item, paths=paths) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _is_of_kind(kind: str, value: object) -> bool:
    if kind in ("text", "path", "size", "duration"):
        return isinstance(value, str)
    if kind in ("texts", "paths"):
        return isinstance(value, list) and all(_is_of_kind("text", item) for item in value)
    if kind == "table":
        return isinstance(value, Mapping) and all(
            _is_of_kind("text", item) for pair in value.items() for item in pair
        )
    if kind == "boolean":
        return isinstance(value, bool)
    whole = isinstance(value, int) and not isinstance(value, bool)
    # Infinity and NaN are numbers of TOML, and none of a limit.
    return whole or (kind == "number" and isinstance(value, float) and value - value == 0)

"""Policies built in Python."""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Callable, TypedDict, Union, get_type_hints

from . import _toml
from ._exceptions import PolicyError

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Path = Union[str, os.PathLike[str]]


class ListChange(TypedDict, total=False):
    """A change of an inherited list. Without it, the items of a list are added."""

    remove: Sequence[_Path]
    add: Sequence[_Path]


class Credential(TypedDict):
    """A header that is set on each request to a host. Its value contains references to secrets: `${NAME}` for
    an environment variable, `${file:/path}` for a file."""

    header: str
    value: str


class _HostOf(TypedDict):
    host: str


class Host(_HostOf, total=False):
    """A host to which the guest may connect, with conditions (`docs/network.md` in the repository)."""

    ports: Sequence[int]
    methods: Sequence[str]
    paths: Sequence[str]
    credential: Credential
    private: bool
    raw: bool


class HostsChange(TypedDict, total=False):
    """A change of an inherited list of hosts."""

    remove: Sequence[str]
    add: Sequence[str | Host]


_Hosts = Union[Sequence[Union[str, Host]], HostsChange]
_Texts = Union[Sequence[str], ListChange]
_Paths = Union[Sequence[_Path], ListChange]
# Texts with a unit.
_Size = Annotated[str, "size"]
_Duration = Annotated[str, "duration"]


class PythonTable(TypedDict, total=False):
    """`[python]`: the guest's interpreter."""

    interpreter: _Path
    environment: str
    packages: _Texts
    preload: _Texts
    path: _Paths
    project: _Path
    fresh: bool


class EnvironmentsTable(TypedDict, total=False):
    """`[environments]`: whether missing packages are installed at the first use, and whether packages can be
    added to running sessions."""

    create: bool
    add: bool


class ImportsTable(TypedDict, total=False):
    """`[imports]`: the modules that guest code may import, for good error messages; not a security
    boundary."""

    allow: _Texts


class FilesystemTable(TypedDict, total=False):
    """`[filesystem]`: the visible files of the host, and the sizes of `/work` and `/tmp`."""

    system: str
    proc: bool
    work_exec: bool
    read: _Paths
    write: _Paths
    work_size: _Size
    work_inodes: int
    tmp_size: _Size
    tmp_inodes: int


class NetworkTable(TypedDict, total=False):
    """`[network]`: the network mode, `"none"`, `"loopback"` or `"allow"`, and the allowed hosts."""

    mode: str
    allow: _Hosts
    proxy: str
    resolver: str
    ask: bool
    connections: int
    bytes: _Size


# Functional syntax, because the key `pass` is a keyword.
EnvTable = TypedDict("EnvTable", {"set": Mapping[str, str], "pass": _Texts}, total=False)


class StdioTable(TypedDict, total=False):
    """`[stdio]`: the guest's standard input."""

    stdin: str


class LimitsTable(TypedDict, total=False):
    """`[limits]`: text with units, such as `"2s"` and `"256MiB"`, and counts."""

    wall: _Duration
    cpu: _Duration
    memory: _Size
    pids: int
    open_files: int
    file_size: _Size
    output: _Size
    cores: float


class SyscallsTable(TypedDict, total=False):
    """`[syscalls]`: system calls to add to the preset, and to remove from it."""

    allow: _Texts
    deny: _Texts


class AssuranceTable(TypedDict, total=False):
    """`[assurance]`: the minimum level that a run requires."""

    require: str


class SessionTable(TypedDict, total=False):
    """`[session]`: the times after which a session ends and an unused session is paused (`"never"` for no
    limit), and the number and memory of its snapshots."""

    idle: _Duration
    age: _Duration
    pause_after: _Duration
    snapshots: int
    snapshot_bytes: _Size


class PolicyTables(TypedDict, total=False):
    """The tables of a policy, and its top-level keys."""

    extends: _Path
    description: str
    python: PythonTable
    environments: EnvironmentsTable
    imports: ImportsTable
    filesystem: FilesystemTable
    network: NetworkTable
    env: EnvTable
    stdio: StdioTable
    limits: LimitsTable
    syscalls: SyscallsTable
    assurance: AssuranceTable
    session: SessionTable


_NAMES = get_type_hints(PolicyTables, include_extras=True)
# The types of the keys of each table.
_KEYS = {
    name: get_type_hints(table, include_extras=True)
    for name, table in _NAMES.items()
    if hasattr(table, "__total__")
}


class Policy:
    """A policy built in Python instead of a TOML file. It defines what guest code may do.

    The keyword arguments are the tables of a policy file, with the same keys and values
    (`docs/policy.md` in the repository). Missing keys are taken from `extends`, or from `standard`.

    Raises `PolicyError` for an unknown key and for a value of the wrong type. Whether values are in range,
    and whether the host can enforce them, is checked when the supervisor creates a sandbox. Relative paths
    then start from the current directory.
    """

    __slots__ = ("_document",)

    def __init__(self, **tables: Unpack[PolicyTables]) -> None:
        self._document = _checked_document(tables)

    def tables(self) -> dict[str, Any]:
        """A deep copy of the policy's tables: `Policy(**policy.tables()) == policy`."""
        return copy.deepcopy(self._document)

    def to_toml(self) -> str:
        """The policy as the text of a TOML file."""
        return _toml.dumps(self._document)

    def dump(self, path: _Path) -> None:
        """Writes the policy to a TOML file. Relative paths in it then start from the file's directory."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_toml())

    def __eq__(self, other: object) -> bool:
        return self._document == other._document if isinstance(other, Policy) else NotImplemented

    def __hash__(self) -> int:
        # Equal documents may differ in key order and number types, but not in the names of their tables.
        return hash(frozenset(self._document))

    def __repr__(self) -> str:
        return f"Policy({', '.join(f'{name}={value!r}' for name, value in self._document.items())})"


def policy_of(tables: Mapping[Any, Any]) -> Policy:
    """Builds a policy from a dict of its tables."""
    return Policy(**{str(name): table for name, table in tables.items()})


def _checked_document(given: Mapping[str, object]) -> dict[str, Any]:
    for name in given:
        if name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, n=1)
            remedy = f"did you mean `{near[0]}`?" if near else f"a policy has {', '.join(sorted(_NAMES))}"
            raise PolicyError(f"{name}: unknown key: {remedy}")
    return {
        name: _checked_table(name, given[name]) if name in _KEYS else _checked(name, hint, given[name])
        for name, hint in _NAMES.items()
        if given.get(name) is not None
    }


def _checked_table(name: str, table: object) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise PolicyError(f"{name} is of type {type(table).__name__}: give a dict of its keys")
    keys = _KEYS[name]
    checked = {}
    for key, value in table.items():
        if key not in keys:
            near = difflib.get_close_matches(str(key), keys, n=1)
            remedy = f"did you mean `{name}.{near[0]}`?" if near else f"{name} has {', '.join(sorted(keys))}"
            raise PolicyError(f"{name}.{key}: unknown key: {remedy}")
        checked[key] = _checked(f"{name}.{key}", keys[key], value)
    return checked


def _checked(key: str, hint: Any, value: object) -> Any:
    """Converts a value to TOML's types. Raises `PolicyError` if it has the wrong type for the key."""
    wanted, fits = _KINDS[hint]
    plain = _plain(value, paths=hint in (_Path, _Paths))
    if fits(plain):
        return plain
    raise PolicyError(f"{key}: {value!r} is of type {type(value).__name__}: give {wanted}")


def _plain(value: object, *, paths: bool) -> object:
    """Copies a value in TOML's types, so that later changes to the caller's lists do not affect the
    policy."""
    if paths and isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item, paths=paths) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item, paths=paths) for key, item in value.items()}
    return value


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, (*value.keys(), *value.values())))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    # TOML has infinity and NaN, but a limit may not be either.
    return _is_count(value) or (isinstance(value, float) and value - value == 0)


def _are_texts(value: object) -> bool:
    if isinstance(value, Mapping):
        return value.keys() <= {"remove", "add"} and all(map(_is_list_of_texts, value.values()))
    return _is_list_of_texts(value)


def _are_hosts(value: object) -> bool:
    if isinstance(value, Mapping):
        hosts, removed = value.get("add", []), value.get("remove", [])
        return value.keys() <= {"remove", "add"} and _is_list_of_hosts(hosts) and _is_list_of_texts(removed)
    return _is_list_of_hosts(value)


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_list_of_hosts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) or _is_host(item) for item in value)


def _is_host(value: object) -> bool:
    """Whether the value has the shape of a host table. The supervisor validates its keys and values."""
    if not isinstance(value, Mapping) or not isinstance(value.get("host"), str):
        return False
    simple = (str, bool, int)
    return all(
        isinstance(item, simple)
        or (isinstance(item, list) and all(isinstance(part, simple) for part in item))
        or _is_table(item)
        for item in value.values()
    )


# The description and the predicate of each type.
_KINDS: dict[Any, tuple[str, Callable[[object], bool]]] = {
    str: ("a text", _is_text),
    _Path: ("a path", _is_text),
    _Texts: ('a list of texts, or {"remove": [...], "add": [...]}', _are_texts),
    _Paths: ('a list of paths, or {"remove": [...], "add": [...]}', _are_texts),
    _Hosts: (
        'a list of hosts, each a text or a dict such as {"host": "api.github.com", "methods": ["GET"]}',
        _are_hosts,
    ),
    Mapping[str, str]: ("a dict of texts", _is_table),
    bool: ("True or False", lambda value: isinstance(value, bool)),
    int: ("a whole number", _is_count),
    float: ("a number", _is_number),
    _Size: ('a text with a unit, such as "256MiB"', _is_text),
    _Duration: ('a text with a unit, such as "2s"', _is_text),
}

"""Policies built in Python."""

from __future__ import annotations

import math
import pathlib
import re
import sys
import types

import pytest

import sandfork
from sandfork import Policy, PolicyError, Sandbox, _policy
from sandfork._options import own_interpreter

from .support.fake import FakeSupervisor

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "policy.md"

EVERYTHING = Policy(
    extends="strict",
    description='A "quoted" \\ line\nand \u20ac \x7f',
    python={"interpreter": pathlib.Path("/usr/bin/python3"), "preload": ["numpy?"], "fresh": True},
    imports={"allow": ["math", "numpy.*"]},
    filesystem={"read": [pathlib.Path("/srv"), "/data"], "work_inodes": 16, "proc": False},
    network={
        "mode": "allow",
        "allow": [
            "a.b",
            {
                "host": "b.example",
                "methods": ("GET",),
                "credential": {"header": "X", "value": "${K}"},
            },
        ],
        "connections": 4,
        "bytes": "1MiB",
    },
    env={"set": {"TZ": "UTC", "odd key": "x"}, "pass": ("TOKEN",)},
    stdio={"stdin": "closed"},
    limits={"wall": "2s", "pids": 4, "cores": 0.5},
    syscalls={"deny": []},
    assurance={"require": "full"},
    session={"idle": "never"},
)

TEXT = r"""extends = "strict"
description = "A \"quoted\" \\ line\nand € \u007f"

[python]
interpreter = "/usr/bin/python3"
preload = ["numpy?"]
fresh = true

[imports]
allow = ["math", "numpy.*"]

[filesystem]
read = ["/srv", "/data"]
work_inodes = 16
proc = false

[network]
mode = "allow"
allow = ["a.b", { host = "b.example", methods = ["GET"], credential = { header = "X", value = "${K}" } }]
connections = 4
bytes = "1MiB"

[env]
pass = ["TOKEN"]

[env.set]
TZ = "UTC"
"odd key" = "x"

[stdio]
stdin = "closed"

[limits]
wall = "2s"
pids = 4
cores = 0.5

[syscalls]
deny = []

[assurance]
require = "full"

[session]
idle = "never"
"""


def test_a_policy_is_a_toml_file(tmp_path: pathlib.Path) -> None:
    assert EVERYTHING.to_toml() == TEXT
    EVERYTHING.dump(tmp_path / "policy.toml")
    assert (tmp_path / "policy.toml").read_text(encoding="utf-8") == TEXT
    assert Policy().to_toml() == "\n"
    assert Policy(limits={}).to_toml() == "[limits]\n"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is new in 3.11")
def test_written_toml_parses_to_the_same_document() -> None:
    import tomllib

    assert tomllib.loads(EVERYTHING.to_toml()) == EVERYTHING.tables()


def test_a_policy_is_made_of_its_tables() -> None:
    tables = EVERYTHING.tables()
    assert Policy(**tables) == EVERYTHING
    assert hash(Policy(**tables)) == hash(EVERYTHING)
    # The order of keys and the type of a number do not affect equality.
    one = Policy(limits={"cores": 1}, env={"set": {"A": "1", "B": "2"}})
    other = Policy(limits={"cores": 1.0}, env={"set": {"B": "2", "A": "1"}})
    assert one == other
    assert hash(one) == hash(other)
    tables["limits"]["wall"] = "9s"
    assert Policy(**tables) != EVERYTHING
    assert EVERYTHING != "strict"
    allowed = ["math"]
    policy = Policy(imports={"allow": allowed})
    allowed.append("os")
    assert policy.tables() == {"imports": {"allow": ["math"]}}
    assert repr(policy) == "Policy(imports={'allow': ['math']})"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"limits": {"wal": "2s"}}, "limits.wal: unknown key: did you mean `limits.wall`?"),
        ({"assurance": {"x": 1}}, "assurance.x: unknown key: assurance has require"),
        ({"limits": {"wall": 2}}, 'limits.wall: 2 is of type int: give a text with a unit, such as "2s"'),
        ({"limits": {"memory": 2.5}}, 'such as "256MiB"'),
        ({"limits": {"pids": True}}, "limits.pids: True is of type bool: give a whole number"),
        ({"limits": {"pids": 2.0}}, "give a whole number"),
        ({"limits": {"cores": math.inf}}, "limits.cores: inf is of type float: give a number"),
        ({"limits": ["wall"]}, "limits is of type list: give a dict of its keys"),
        ({"filesystem": {"read": "/srv"}}, "'/srv' is of type str: give a list of paths"),
        ({"filesystem": {"read": [3]}}, "give a list of paths"),
        ({"filesystem": {"proc": 1}}, "give True or False"),
        ({"imports": {"allow": [pathlib.Path("x")]}}, "give a list of texts"),
        ({"network": {"allow": "a.example"}}, "give a list of hosts"),
        ({"network": {"allow": [{"ports": [443]}]}}, "give a list of hosts"),
        ({"network": {"allow": [{"host": "a.example", "ports": [{}]}]}}, "give a list of hosts"),
        ({"network": {"allow": {"remove": [{"host": "a.example"}]}}}, "give a list of hosts"),
        ({"env": {"set": {"A": 1}}}, "give a dict of texts"),
        ({"env": {"set": ["A"]}}, "give a dict of texts"),
        ({"extends": 3}, "extends: 3 is of type int: give a path"),
        ({"description": b"x"}, "give a text"),
    ],
)
def test_unknown_policy_keys_are_rejected(arguments: dict, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy(**arguments)
    assert said in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_list_can_be_a_change_of_the_inherited_one() -> None:
    change = {"remove": ("pandas",), "add": ["polars"]}
    policy = Policy(
        extends="data-science",
        python={"preload": change},  # type: ignore[typeddict-item]
        filesystem={"read": {"add": [pathlib.Path("/srv")]}},
    )
    assert policy.tables()["python"] == {"preload": {"remove": ["pandas"], "add": ["polars"]}}
    assert policy.tables()["filesystem"] == {"read": {"add": ["/srv"]}}
    assert Policy(**policy.tables()) == policy
    assert '[python.preload]\nremove = ["pandas"]\nadd = ["polars"]\n' in policy.to_toml()


@pytest.mark.parametrize(
    "change", [{"removed": ["x"]}, {"remove": "x"}, {"remove": [1]}, {"add": {"x": 1}}, {"add": None}]
)
def test_invalid_list_change_is_rejected(change: dict) -> None:
    with pytest.raises(PolicyError, match=r'python.preload: .*: give a list of texts, or {"remove": '):
        Policy(python={"preload": change})  # type: ignore[typeddict-item]


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(sandfork.PolicyError, match="limit: unknown key: did you mean `limits`?"):
        Policy(limit={})  # type: ignore[call-arg]


def test_the_keys_are_those_of_the_document() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| ([^|]+) \|", DOCUMENT.read_text(encoding="utf-8"), re.M)
    documented = {key: kind for key, kind in rows if "." in key}
    keys = _policy._KEYS.items()
    ours = {f"{table}.{key}": _policy._KINDS[hint][0] for table, of in keys for key, hint in of.items()}
    assert documented.keys() == ours.keys()
    for key, words in documented.items():
        assert _KINDS[ours[key]] in words, f"{key}: {words}"


# The term of the documentation for each type.
_KINDS = {
    "a text": "`",
    "a path": "text",
    'a list of texts, or {"remove": [...], "add": [...]}': "list of",
    'a list of paths, or {"remove": [...], "add": [...]}': "list of",
    _policy._KINDS[_policy._Hosts][0]: "list of",
    "a dict of texts": "table of texts",
    "True or False": "boolean",
    "a whole number": "number",
    "a number": "number",
    'a text with a unit, such as "256MiB"': "size",
    'a text with a unit, such as "2s"': "duration",
}


def test_policies_are_sent_unchanged(
    fake: FakeSupervisor, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ours = {"directory": str(tmp_path), "interpreter": sys.executable}
    policy = Policy(limits={"wall": "2s"})
    expected = [
        ("strict", {"name": "strict", **ours}),
        ("./tenant.toml", {"name": "./tenant.toml", **ours}),
        (pathlib.Path("strict"), {"name": "./strict", **ours}),
        (pathlib.Path("/etc/x.toml"), {"name": "/etc/x.toml", **ours}),
        (policy, {"toml": policy.to_toml(), "label": "Policy", **ours}),
        (policy.tables(), {"toml": policy.to_toml(), "label": "Policy", **ours}),
        (types.MappingProxyType(policy.tables()), {"toml": policy.to_toml(), "label": "Policy", **ours}),
        ({}, {"toml": "\n", "label": "Policy", **ours}),
    ]
    for given, sent in expected:
        with Sandbox(given):
            assert fake.sessions[-1].heard[0]["policy"] == sent


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"limit": {"wall": "2s"}}, "limit: unknown key: did you mean `limits`?"),
        ({3: {}}, "3: unknown key: a policy has assurance, description, env, environments, extends, "),
        ({"limits": {"wal": "2s"}}, "limits.wal: unknown key: did you mean `limits.wall`?"),
        ({"limits": "2s"}, "limits is of type str: give a dict of its keys"),
    ],
)
def test_invalid_dict_is_rejected_like_an_invalid_policy(tables: dict, said: str) -> None:
    for start in (Sandbox, lambda policy: sandfork.run("1", policy=policy)):
        with pytest.raises(PolicyError) as caught:
            start(tables)
        assert said in str(caught.value)


@pytest.mark.parametrize("program", [None, "", "/usr/sbin/uwsgi", "python3", "/opt/\udce9/python3"])
def test_a_program_that_embeds_python_offers_the_interpreter_of_its_prefix(
    program: str | None, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert own_interpreter() is None
    interpreter = tmp_path / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    interpreter.parent.mkdir()
    interpreter.symlink_to("/bin/true")
    names_another = program is not None and "python" in program
    assert own_interpreter() == (None if names_another else str(interpreter))


def test_unsuitable_python_uses_the_policys_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_interpreter() == sys.executable
    monkeypatch.setattr(sys, "abiflags", "t")
    assert own_interpreter() is None
    monkeypatch.setattr(sys, "abiflags", "")
    monkeypatch.setattr(sys, "implementation", types.SimpleNamespace(name="pypy"))
    assert own_interpreter() is None

from __future__ import annotations

import json

import pytest

from sandfork import Policy, RequestError
from sandfork.smolagents._policy import FROM_POLICY, executor_policy


def tables(*args, **kwargs):  # type: ignore[no-untyped-def]
    return executor_policy(*args, **kwargs).tables()


def test_without_a_policy_it_is_like_the_local_executor() -> None:
    assert tables(None, ["math"], None, FROM_POLICY) == {
        "imports": {"allow": ["math"]},
        "limits": {"wall": "30000ms"},
    }


def test_callers_policy_takes_precedence() -> None:
    assert tables("strict", ["math"], None, FROM_POLICY) == {
        "extends": "strict",
        "imports": {"allow": ["math"]},
    }


def test_arguments_are_added_to_the_policy() -> None:
    policy = Policy(
        imports={"allow": ["json", "math"]},
        python={"interpreter": "/usr/bin/python3", "preload": ["json"]},
        limits={"memory": "1GiB", "wall": "5s", "cpu": "5s"},
    )
    assert tables(policy, ["math", "re"], "/opt/venv", 2.5) == {
        "imports": {"allow": ["json", "math", "re"]},
        "python": {"interpreter": "/opt/venv", "preload": ["json"]},
        "limits": {"memory": "1GiB", "wall": "2500ms", "cpu": "5s"},
    }
    assert policy.tables()["limits"]["wall"] == "5s"


def test_dict_policy_can_be_saved_with_an_agent() -> None:
    saved = json.loads(json.dumps({"extends": "strict", "limits": {"memory": "64MiB"}}))
    assert tables(saved, [], None, FROM_POLICY) == {
        "extends": "strict",
        "imports": {"allow": []},
        "limits": {"memory": "64MiB"},
    }


def test_authorized_imports_are_added_to_a_change_of_the_list() -> None:
    source = {"extends": "strict", "imports": {"allow": {"remove": ["re"], "add": ["json"]}}}
    made = tables(source, ["math"], None, FROM_POLICY)
    assert made["imports"] == {"allow": {"remove": ["re"], "add": ["json", "math"]}}


@pytest.mark.parametrize(
    ("seconds", "told"), [(None, "2592000000ms"), (0.0001, "1ms"), (1e12, "2592000000ms")]
)
def test_timeouts_become_policy_durations(seconds: float | None, told: str) -> None:
    assert tables("standard", ["*"], None, seconds)["limits"] == {"wall": told}


@pytest.mark.parametrize("seconds", [0, -1, "5"])
def test_invalid_times_are_named(seconds: object) -> None:
    with pytest.raises(RequestError, match="^timeout_seconds is .*: give seconds"):
        tables(None, ["*"], None, seconds)


def test_every_import() -> None:
    assert "imports" not in tables(None, ["math", "*"], None, FROM_POLICY)

"""The real supervisor."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

import sandfork
from sandfork import Sandbox, _binary, _supervisor

REPOSITORY = pathlib.Path(__file__).parents[3]

# The tests of snapshots.
SNAPSHOTS = ("test_pauses.py", "test_saved.py", "test_snapshots.py")


@pytest.fixture(scope="session")
def doctor() -> dict:
    """The host's capabilities. A missing program is an error, because there is nothing to test."""
    os.environ.setdefault(_binary.VARIABLE, str(REPOSITORY / "target" / "debug" / "sandfork"))
    told = subprocess.run([_binary.find(), "doctor", "--json"], stdout=subprocess.PIPE, check=False)
    return json.loads(told.stdout)


@pytest.fixture(scope="session", autouse=True)
def real(doctor: dict) -> Iterator[None]:
    """A host that supports sandboxes, and a supervisor that leaves nothing behind."""
    if doctor["level"] not in ("full", "standard"):
        pytest.skip(f"`sandfork doctor`: the best level of this host is {doctor['level']}")
    yield
    if _supervisor._shared is not None:
        _supervisor._shared.end()


@pytest.fixture(autouse=True)
def possible(request: pytest.FixtureRequest, doctor: dict) -> None:
    """Skips the tests of features that the host lacks."""
    snapshots = doctor["snapshots"]
    if request.path.name in SNAPSHOTS and snapshots["state"] != "usable":
        pytest.skip(f"`sandfork doctor`: {snapshots['error']}")


@pytest.fixture
def sbx() -> Iterator[Sandbox]:
    """A session under the default policy."""
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def packages() -> sandfork.Policy:
    """A policy whose interpreter has numpy and pandas."""
    manifest = REPOSITORY / "target" / "test-envs" / "manifest.json"
    if not manifest.exists():
        pytest.fail("no test environments: run `cargo xtask test envs`")
    found = json.loads(manifest.read_text())["interpreters"]
    found.sort(key=lambda one: one["version"][:2] != list(sys.version_info[:2]))
    # The environment with this Python version comes first, so that both sides have the same packages.
    return sandfork.Policy(extends="data-science", python={"interpreter": found[0]["venv"]})

"""The state that each run gets from preloaded packages."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator

import pytest

import sandfork

# A package that keeps generators and its directory, as sympy and hypothesis do.
PACKAGE = """
import os, random

HERE = os.getcwd()
GENERATOR = random.Random()
NORMAL = random.Random()
NORMAL.gauss(0, 1)


class Other(random.Random):
    def seed(self, *args):
        raise NotImplementedError


OTHER = [Other.__new__(Other)]
"""
NUMPY = """
import numpy

DEFAULT = numpy.random.default_rng()
STATE = numpy.random.RandomState(5)
SEQUENCE = numpy.random.SeedSequence()
"""


@pytest.fixture
def place() -> Iterator[pathlib.Path]:
    """A directory that guests can read, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as made:
        path = pathlib.Path(made)
        path.chmod(0o755)
        yield path


def preloading(policy: sandfork.Policy, place: pathlib.Path, source: str) -> sandfork.Policy:
    (place / "kept.py").write_text(source)
    tables = policy.tables()
    tables.setdefault("python", {}).update(path=[str(place)], preload=["kept"])
    return sandfork.Policy(**tables)


def test_runs_do_not_share_the_generators_of_a_preloaded_package(
    packages: sandfork.Policy, place: pathlib.Path
) -> None:
    policy = preloading(packages, place, PACKAGE + NUMPY)
    code = (
        "import kept\n"
        "[kept.GENERATOR.random(), kept.NORMAL.gauss(0, 1), kept.OTHER[0].random(), kept.DEFAULT.random(),\n"
        " kept.STATE.rand(), kept.SEQUENCE.spawn(1)[0].generate_state(1).tolist()]"
    )
    runs = [sandfork.run(code, policy=policy) for _ in range(3)]
    for drawn in zip(*(run.value for run in runs)):
        assert len(set(map(str, drawn))) == 3, drawn


def test_a_package_is_preloaded_in_the_guests_directory(place: pathlib.Path) -> None:
    policy = preloading(sandfork.Policy(), place, PACKAGE)
    execution = sandfork.run("import kept, os; [kept.HERE, os.getcwd(), os.listdir()]", policy=policy)
    assert execution.value == ["/work", "/work", []]

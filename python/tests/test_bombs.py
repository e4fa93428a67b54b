"""Values that were made to hurt whoever reads them, each first shown to hurt a naive host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .support import bombs

PROGRAM = Path(bombs.__file__)


def read(host: str, name: str) -> subprocess.CompletedProcess[str]:
    # Apart, because what a naive host does takes its process along.
    command = [sys.executable, str(PROGRAM), host, name]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", bombs.BOMBS)
def test_a_naive_host_falls(name: str) -> None:
    fallen = read("naive", name)
    assert fallen.returncode != 0, fallen.stdout


@pytest.mark.parametrize("name", bombs.BOMBS)
def test_this_one_refuses(name: str) -> None:
    standing = read("ours", name)
    assert standing.returncode == 0, standing.stderr
    assert standing.stdout.startswith("refused: ")

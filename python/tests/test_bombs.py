"""Values that are made to exhaust their reader. Each is first shown to exhaust a naive host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .support import bombs

PROGRAM = Path(bombs.__file__)


def read(host: str, name: str) -> subprocess.CompletedProcess[str]:
    # In a separate process, because a naive host does not survive.
    command = [sys.executable, str(PROGRAM), host, name]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", bombs.BOMBS)
def test_naive_host_is_exhausted(name: str) -> None:
    fallen = read("naive", name)
    assert fallen.returncode != 0, fallen.stdout


@pytest.mark.parametrize("name", bombs.BOMBS)
def test_guarded_host_refuses(name: str) -> None:
    standing = read("ours", name)
    assert standing.returncode == 0, standing.stderr
    assert standing.stdout.startswith("refused: ")

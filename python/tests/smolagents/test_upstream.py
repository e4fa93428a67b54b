"""smolagents' own tests of agents and executors, with a `NativeExecutor` in place of theirs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import smolagents

RELEASE = "1.26.0"
HERE = Path(__file__).parent / "upstream"
# Classes whose tests create executors, or agents that create executors.
SELECTED = [
    "tests/test_agents.py",
    "tests/test_local_python_executor.py::TestLocalPythonExecutor",
    "tests/test_local_python_executor.py::TestTimeout",
    "tests/test_local_python_executor.py::TestLocalPythonExecutorSecurity::test_vulnerability_import",
    "tests/test_local_python_executor.py::TestLocalPythonExecutorSecurity::test_vulnerability_builtins",
    "tests/test_default_tools.py::TestPythonInterpreterTool",
    "tests/test_remote_executors.py::TestE2BExecutorIntegration",
    "tests/test_remote_executors.py::TestDockerExecutorIntegration",
    "tests/test_remote_executors.py::TestModalExecutorIntegration",
]
# There were 172. A much smaller number means that the tests were not found.
FEWEST = 155


def archive() -> Path:
    told = os.environ.get("SANDFORK_TEST_DOWNLOADS")
    if not told:
        pytest.skip("SANDFORK_TEST_DOWNLOADS names no directory with smolagents' source distribution")
    found = Path(told) / f"smolagents-{RELEASE}.tar.gz"
    if not found.exists():
        pytest.skip(f"{found} is missing: it could not be downloaded")
    return found


def deselected() -> list[str]:
    lines = (HERE / "deselected.txt").read_text().splitlines()
    told = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"\S+: \S.*", line) for line in told), "each with its reason"
    return [line.split(": ")[0] for line in told]


def unpack(source: Path, directory: Path) -> Path:
    with tarfile.open(source) as packed:
        members = [each for each in packed.getmembers() if "/tests/" in each.name]
        packed.extractall(directory, members=members, filter="data")
    root = directory / f"smolagents-{RELEASE}"
    (root / "tests/__init__.py").touch()
    (root / "tests/utils").mkdir()
    (root / "tests/utils/__init__.py").touch()
    shutil.copy(HERE / "markers.py", root / "tests/utils/markers.py")
    return root


def pytest_of(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    ours = [str(HERE), str(HERE / "stand_ins"), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "pytest", "-p", "native_everywhere", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-q", "--no-header", "--tb=short", *SELECTED, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, ours))},
        capture_output=True,
        text=True,
        check=False,
    )


def test_smolagents_own_tests_pass(tmp_path: Path) -> None:
    assert smolagents.__version__ == RELEASE
    root, left_out = unpack(archive(), tmp_path), deselected()
    collected = pytest_of(root, "--collect-only").stdout.splitlines()
    assert [name for name in left_out if name not in collected] == []
    done = pytest_of(root, *(f"--deselect={name}" for name in left_out))
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    counted = re.search(r"(\d+) passed", done.stdout)
    assert counted is not None, done.stdout[-500:]
    assert int(counted[1]) >= FEWEST
    print(done.stdout.splitlines()[-1])

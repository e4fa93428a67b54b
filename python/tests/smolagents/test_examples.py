"""The examples with agents print the documented output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"
REFUSED = (
    "Code execution failed at line 'open('/etc/shadow').read()' due to: FileNotFoundError: "
    "[Errno 2] No such file or directory: '/etc/shadow'"
)
HIDDEN = "access /etc/shadow by mounts (`filesystem.read=/etc/shadow` in the policy allows it)"
NO_NETWORK = (
    "this sandbox has no network: `network.allow` in its policy lists the hosts that its code may reach, and "
    '`network.mode = "loopback"` lets its own processes talk to each other'
)
PRINTED = {
    "agent_with_tools": [
        "Best customer: Ada",
        "step 1: [('Ada', 30), ('Bob', 12), ('Ada', 20)]",
        f"step 2: {REFUSED}",
        f"The sandbox refused: {HIDDEN}",
        "step 3: Last output from code snippet:",
    ],
    "web_api": [
        "Warmest city: Rome",
        f"step 1: URLError: <urlopen error [Errno 1] Operation not permitted> ({NO_NETWORK})",
        "step 2: ValueError: the API has these paths: /forecast",
    ],
    "multi_agent": ["Warmest city: Rome", "Keys within reach of its code: []"],
    "whole_agent": ["answer: 3 / THE SANDBOX HOLDS!", "keys in the environment: []", "ended: ok"],
}


@pytest.mark.parametrize("name", PRINTED)
def test_example(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        cwd=tmp_path,
        env={**os.environ, "SOME_API_KEY": "of the host", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    # smolagents' own log of the failed step comes first.
    assert printed[-len(PRINTED[name]) :] == PRINTED[name]

"""Checks inputs with a Python reader of hostile bytes. `fuzz/targets/tests/fuzz` makes them and starts this."""

from __future__ import annotations

import resource
import signal
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python" / "src"))

import client_frames  # noqa: E402
import python_values  # noqa: E402
from rust import Rust  # noqa: E402

TARGETS = {"client_frames": client_frames.Target, "python_values": python_values.Target}
# The limits for one input: an input that costs its reader far more than its sender is a defect.
SECONDS = 30
MEMORY = 8 << 30


def main(name: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    rust = Rust(sys.stdin.buffer, sys.stdout.buffer)
    check = TARGETS[name](rust).check
    while (message := rust.receive()) is not None:
        # Counts processor time. The signal ends the process wherever it is.
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            rust.send(b"+" if check(message[1]) else b"-", b"")
        except Exception:
            rust.send(b"!", traceback.format_exc().encode())


main(sys.argv[1])

"""Times `python3 -c pass` in a sandbox of sandlock, made from a process that has it loaded.

Arguments: the interpreter, and the directory of its installation. Each line of standard input is a
count; the answer is a line of that many times in nanoseconds, or the reason why there are none."""

import os
import sys
import time

from sandlock import Sandbox

PYTHON, INSTALLATION = sys.argv[1:]
SHOWN = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev", INSTALLATION, os.path.dirname(PYTHON)]
READABLE = sorted({path for path in SHOWN if os.path.exists(path)})


def run(code):
    # The same limits as Sandfork's default policy.
    made = Sandbox(fs_readable=READABLE, fs_writable=["/tmp"], max_memory="512M", max_processes=64)
    return made.run([PYTHON, "-c", code])


def once():
    start = time.perf_counter_ns()
    run("pass")
    return time.perf_counter_ns() - start


def reason():
    """Returns why it cannot run Python here, or nothing if it can."""
    try:
        result = run("print(6 * 7)")
    except Exception as error:
        return " ".join(str(error).split())
    if bytes(result.stdout).strip() == b"42":
        return None
    return " ".join(bytes(result.stderr).decode(errors="replace").split()) or "it printed nothing"


WHY = reason()
for line in iter(sys.stdin.readline, ""):
    print(WHY or " ".join(str(once()) for _ in range(int(line))), flush=True)

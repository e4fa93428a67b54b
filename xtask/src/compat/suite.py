"""Runs modules of CPython's own test suite and prints how each test ended.

The same file runs outside and inside. The tests print where they like; the last line of the real
stdout is one JSON object: `{"test.test_a.Class.test_b": "passed" | "skipped: why" | "failed: why"}`.
"""

import json
import os
import runpy
import sys
import xml.etree.ElementTree as ElementTree

REPORT = "report-of-the-suite.xml"


def in_short(text):
    """The last line of a traceback."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no text"


def ending(case):
    """How one test of the report ended."""
    for child in case:
        if child.tag == "skipped":
            return "skipped: " + in_short(child.text)
        if child.tag in ("failure", "error"):
            return "failed: " + in_short(child.text or child.get("message"))
    return "skipped" if case.get("result") == "skipped" else "passed"


def run(module):
    """Runs a module as `python -m test` does, with its prints thrown away."""
    sys.argv[1:] = ["--junit-xml", REPORT, module]
    shown = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        runpy.run_module("test", run_name="__main__", alter_sys=True)
    except SystemExit:
        pass
    finally:
        os.dup2(shown, 1)
    cases = ElementTree.parse(REPORT).iter("testcase")
    found = {case.get("name"): ending(case) for case in cases}
    os.write(1, b"\n" + json.dumps(found).encode() + b"\n")


if __name__ == "__main__":
    run(sys.argv[1])
    # What a test left running must not keep the answer.
    os._exit(0)

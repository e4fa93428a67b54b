"""Runs a module of CPython's own test suite and reports each test as it begins and ends.

The same file runs outside and inside: `suite.py MODULE [NAMES]`, where the file NAMES has the only tests to
run. The tests print where they like; each line of the real stdout is a JSON list of a test's name and
"began", "passed", "skipped: why" or "failed: why". So a module that is killed loses only the tests
that it had not run.
"""

import faulthandler
import glob
import json
import os
import runpy
import sys
import tempfile
import traceback
import unittest

# Seconds after which a test ends its module. On an idle machine no test takes a third of it.
PATIENCE = 120


def in_short(text):
    """The last line of a traceback."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no text"


def report(results, say):
    """Makes regrtest's results report each test. Other results belong to tests of unittest itself."""

    def wrap(name, how):
        original = getattr(unittest.TestResult, name)

        def method(self, test, *details):
            if type(self).__name__ == "RegressionTestResult":
                said = how(*details)
                if said:
                    say(getattr(test, "test_case", test).id(), said)
            return original(self, test, *details)

        setattr(unittest.TestResult, name, method)

    def failed(error):
        return "failed: " + in_short("".join(traceback.format_exception_only(*error[:2])))

    def began():
        faulthandler.dump_traceback_later(PATIENCE, exit=True, file=results)
        return "began"

    wrap("startTest", began)
    wrap("addSuccess", lambda: "passed")
    wrap("addExpectedFailure", lambda error: "passed")
    wrap("addSkip", lambda reason: "skipped: " + in_short(reason))
    wrap("addError", failed)
    wrap("addFailure", failed)
    wrap("addUnexpectedSuccess", lambda: "failed: unexpected success")
    wrap("addSubTest", lambda subtest, error: failed(error) if error else None)


def skipped_whole(printed, module):
    """Why the module ran no test, in the words of regrtest."""
    mark = module + " skipped -- "
    reasons = [line.partition(mark)[2] for line in printed.splitlines() if mark in line]
    return "skipped: " + reasons[-1][:200] if reasons else None


def run(module, names):
    """Runs a module like `python -m test`, with its output captured separately."""
    shown = os.dup(1)
    prints = tempfile.TemporaryFile()
    os.dup2(prints.fileno(), 1)
    os.dup2(prints.fileno(), 2)

    def say(test, how):
        os.write(shown, (json.dumps([test, how]) + "\n").encode())

    report(prints, say)
    only = [word for name in names for word in ("-m", glob.escape(name))]
    sys.argv[1:] = [module, *only]
    try:
        runpy.run_module("test", run_name="__main__", alter_sys=True)
    except SystemExit:
        pass
    prints.seek(0)
    why = skipped_whole(prints.read().decode(errors="replace"), module)
    if why:
        say(module, why)
    say("", "ended")


if __name__ == "__main__":
    chosen = []
    if len(sys.argv) > 2:
        with open(sys.argv[2]) as file:
            chosen = file.read().splitlines()
    run(sys.argv[1], chosen)
    # Threads that a test left running must not delay the exit.
    os._exit(0)

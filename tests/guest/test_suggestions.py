"""Tests that the last line of a traceback, with suggestions, is that of `python3`."""

import subprocess
import sys
import unittest

from harness import Worker

# Each program ends with an exception.
PROGRAMS = [
    "prnt(1)",
    "[].appendd",
    "from os import nope",
    "from os import pathh",
    "def f():\n    total = 1\n    return totall\nf()",
    "raise NameError",
    "raise NameError('no. Did you mean: that?')",
    "class Named(NameError): pass\nraise Named('x')",
    "class Hostile:\n    def __dir__(self): raise SystemExit(3)\nHostile().name",
    "class Many:\n    def __init__(self): vars(self).update(dict.fromkeys(map(str, range(100000))))\nMany().name",
    "class Text(str):\n    def partition(self, _): return 1 / 0\nraise NameError(Text('x'))",
    "import sys\nsys.stderr = None\nprnt(1)",
    "import sys\ndel sys.stderr\nprnt(1)",
    "import sys\nsys.tracebacklimit = 5\nprnt(1)",
    "import sys\nsys.__excepthook__ = None\nx",
]


class Suggestions(unittest.TestCase):
    def test_an_exception_has_the_interpreters_suggestion(self):
        for source in PROGRAMS:
            # Without a stream, the interpreter prints nothing about the exception.
            shown = source.replace("sys.stderr = None", "pass").replace("del sys.stderr", "pass")
            program = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True)
            with Worker() as worker:
                said = worker.cell(source).error["traceback"]
            last = program.stderr.splitlines()[-1].removeprefix("__main__.")
            self.assertEqual(said.splitlines()[-1], last, source)

    def test_a_note_stays_behind_the_suggestion(self):
        if sys.version_info < (3, 11):
            self.skipTest("notes came with CPython 3.11")
        with Worker() as worker:
            error = worker.cell("try: prnt(1)\nexcept NameError as error:\n    error.add_note('a note')\n    raise").error
        self.assertTrue(error["traceback"].endswith("Did you mean: 'print'?\na note\n"), error)

    def test_streams_and_limits_are_as_before(self):
        with Worker() as worker:
            worker.cell("import sys\nbefore = sys.stderr\nprnt(1)")
            value = worker.cell("(sys.stderr is before, hasattr(sys, 'tracebacklimit'))").value
            self.assertIn("True", str(value))
            self.assertIn("False", str(value))


if __name__ == "__main__":
    unittest.main()

"""Tests that `last: "statement"` returns the value of a last statement like smolagents' own interpreter."""

import unittest

from harness import Worker

VALUES = {
    "1 + 1": 2,
    "x = 3": 3,
    "x = y = [1]": [1],
    "a, b = 1, (2, 3)": (1, (2, 3)),
    "[a, b] = 'xy'": "xy",
    "a, *b = 1, 2, 3": (1, 2, 3),
    "x: int = 4": 4,
    "x: int": None,
    "x = 1\nx += 2": 3,
    "d = {'k': [1]}\nd['k'][0] -= 2": -1,
    "d['k'] = 9": 9,
    "class C: pass\nC.n = 1": 1,
    "C.n *= 5": 5,
    "x = [1]\nx += [2]": [1, 2],
    "n = [0]\ndef f():\n    n[0] += 1\n    return 0\n[1, 2][f()] += 1": None,
    "n": [1],
    "if True:\n    x = 5": 5,
    "if False:\n    x = 5\nelse:\n    'other'": "other",
    "if False:\n    x = 5\nelif True:\n    6\n    None": 6,
    "if False:\n    x = 5": None,
    "if True:\n    pass": None,
    "for i in range(3):\n    x = i * 2": 4,
    "for i in range(3):\n    if i == 1: i": 1,
    "for i in range(5):\n    if i == 3: break\n    y = i": 2,
    "for i in []:\n    x = i": None,
    "for i in range(3):\n    print(i)": None,
    "for i in range(3):\n    while True:\n        break": None,
    "i = 0\nwhile i < 3:\n    i += 1": None,
    "try:\n    x = 1\nexcept Exception:\n    x = 2": None,
    "import contextlib\nwith contextlib.nullcontext(3) as x:\n    y = x": None,
    "import math": None,
    "del y": None,
    "pass": None,
    "assert True": None,
    "print('x')": None,
    "": None,
    "# nothing": None,
    "x = (yield_ := 7)": 7,
    "x = 3;": 3,
}


class Statements(unittest.TestCase):
    def setUp(self):
        self.worker = Worker()
        self.addCleanup(self.worker.close)

    def test_values(self):
        for source, value in VALUES.items():
            with self.subTest(source=source):
                self.assertEqual(self.worker.value(source, last="statement"), value)
        self.assertEqual(self.worker.value("[name for name in globals() if '<' in name]"), [])

    def test_definitions(self):
        found = self.worker.value("def f(x):\n    return x", last="statement")
        self.assertTrue(found.repr.startswith("<function f "))
        found = self.worker.value("@staticmethod\nclass C: pass", last="statement")
        self.assertIn("staticmethod", found.repr)

    def test_a_failing_statement_leaves_nothing(self):
        error = self.worker.cell("x = 1\ny = 1 / 0", last="statement").error
        self.assertIn("line 2", error["traceback"])
        self.assertIn("y = 1 / 0", error["traceback"])
        self.worker.cell("for i in range(2):\n    x = i\n    1 / (1 - i)", last="statement")
        self.assertEqual(self.worker.value("[name for name in globals() if '<' in name]"), [])

    def test_only_expressions_by_default(self):
        self.assertIsNone(self.worker.value("x = 3"))
        self.assertIsNone(self.worker.value("if True:\n    5"))

    def test_text_is_the_repr_and_keeps_the_value(self):
        self.assertEqual(self.worker.value("x = 3\n{'a': 1j}", last="text"), "{'a': 1j}")
        self.assertEqual(self.worker.value("_['a'] * 2", last="text"), "2j")
        self.assertIsNone(self.worker.value("None", last="text"))
        self.assertIsNone(self.worker.value("y = 4", last="text"))
        self.assertEqual(self.worker.value("_", last="text"), "2j")
        self.assertLess(len(self.worker.value("'a' * 10**6", last="text")), 20_000)
        error = self.worker.cell("class A:\n    def __repr__(self): 1 / 0\nA()", last="text").error
        self.assertEqual(error["name"], "ZeroDivisionError")

    def test_await(self):
        source = "import asyncio\nfor i in range(2):\n    x = await asyncio.sleep(0, i)"
        self.assertEqual(self.worker.value(source, last="statement"), 1)


if __name__ == "__main__":
    unittest.main()

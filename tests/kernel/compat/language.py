"""Code that inspects itself."""

from __future__ import annotations

import copy
import dataclasses
import enum
import gc
import inspect
import json
import pickle
import subprocess
import sys
import types
import typing
import unittest
import weakref


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0

    def norm(self) -> float:
        return (self.x**2 + self.y**2) ** 0.5


class Colour(enum.Enum):
    RED = 1


assert __name__ == "__main__"
assert pickle.loads(pickle.dumps([Point(3, 4), Colour.RED])) == [Point(3, 4), Colour.RED]
assert "self.x**2" in inspect.getsource(Point.norm)
assert inspect.signature(Point).parameters["y"].default == 0
assert typing.get_type_hints(Point)["x"] is int
assert json.loads(json.dumps(dataclasses.asdict(Point(1)))) == {"x": 1, "y": 0}
assert copy.deepcopy({"a": [Point(1)]}) == {"a": [Point(1)]}
assert __doc__ == "Code that inspects itself."
assert len(sys.argv) == 1

# Libraries for warnings and logs inspect their callers.
frame = sys._getframe()
while frame:
    assert isinstance(frame.f_globals["__name__"], str), frame
    frame = frame.f_back

point = Point(1)
gone = []
weakref.finalize(point, gone.append, 1)
del point
gc.collect()
assert gone == [1]


class Tests(unittest.TestCase):
    def test(self):
        self.assertEqual(Point(3, 4).norm(), 5)


result = unittest.TextTestRunner(stream=sys.stdout).run(unittest.defaultTestLoader.loadTestsFromTestCase(Tests))
assert result.wasSuccessful()


def recurse(depth):
    return depth and recurse(depth - 1)


try:
    recurse(10**6)
except RecursionError:
    pass
assert recurse(500) == 0
assert isinstance(subprocess, types.ModuleType)

"""Tests that the worker imports its own modules, which guest code does not see."""

import sys
import unittest

import harness
from sources import PACKAGE, Sources


def read(name):
    path = harness.GUEST / (name + ".py")
    return path.read_text() if path.exists() else ""


def imported(sources, name, wanted, package=PACKAGE, level=1):
    """Returns what `from ..name import wanted` in a module of the package finds."""
    return sources.import_module(name, {"__package__": package}, None, (wanted,), level)


class Loaded(unittest.TestCase):
    def setUp(self):
        self.sources = Sources(read, {})
        self.wire = self.sources.import_module(PACKAGE + ".wire", None, None, ("loads",))

    def test_a_module_is_found_without_the_import_of_python(self):
        # Python's import uses `sys.modules`, from which the worker hides its modules.
        self.sources.original = None
        self.assertIs(imported(self.sources, "wire", "dumps"), self.wire)
        below = imported(self.sources, "wire", "dumps", PACKAGE + ".session", 2)
        self.assertIs(below, self.wire)
        self.assertIs(imported(self.sources, "", "wire").wire, self.wire)

    def test_a_module_that_is_not_loaded_is_loaded_and_hidden(self):
        importers = imported(self.sources, "importers", "retry_failed_importers")
        self.assertEqual(importers.__name__, PACKAGE + ".importers")
        self.assertEqual([name for name in sys.modules if name.startswith(PACKAGE)], [])

    def test_a_module_of_a_package_that_is_loaded_is_loaded_too(self):
        package = imported(self.sources, "", "importers")
        self.assertEqual(package.importers.__name__, PACKAGE + ".importers")

    def test_a_module_that_does_not_exist_is_not_found(self):
        with self.assertRaises(ModuleNotFoundError):
            imported(self.sources, "absent", "name")


if __name__ == "__main__":
    unittest.main()

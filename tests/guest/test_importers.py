"""Tests that a directory that could not be read during an import is read again."""

import errno
import os
import sys
import tempfile
import unittest
from importlib import import_module
from unittest import mock

import harness  # noqa: F401, with it the guest's sources are found
from importers import retry_failed_importers


class Importers(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        with open(os.path.join(place.name, "seldom_found.py"), "w") as module:
            module.write("found = True")
        self.place = place.name
        sys.path.insert(0, self.place)
        self.addCleanup(sys.path.remove, self.place)
        self.addCleanup(sys.modules.pop, "seldom_found", None)

    def fail_to_find(self, call, error):
        with mock.patch.object(sys.modules["posix"], call, side_effect=error):
            with self.assertRaises(ModuleNotFoundError):
                import_module("seldom_found")
        # The import system does not search again.
        with self.assertRaises(ModuleNotFoundError):
            import_module("seldom_found")

    def test_an_unlistable_directory_is_read_again(self):
        self.fail_to_find("listdir", PermissionError(errno.EPERM, "no"))
        retry_failed_importers()
        self.assertTrue(import_module("seldom_found").found)

    def test_a_directory_that_failed_to_stat_is_read_again(self):
        self.fail_to_find("stat", OSError(errno.ENOMEM, "no memory"))
        self.assertIsNone(sys.path_importer_cache[self.place])
        with mock.patch.object(os, "stat", side_effect=OSError(errno.ENOMEM, "no memory")):
            with self.assertRaises(OSError):
                retry_failed_importers()
        retry_failed_importers()
        self.assertTrue(import_module("seldom_found").found)

    def test_a_non_directory_is_not_read_again(self):
        absent = os.path.join(self.place, "absent")
        self.addCleanup(sys.path_importer_cache.pop, absent)
        sys.path_importer_cache[absent] = None
        retry_failed_importers()
        self.assertIsNone(sys.path_importer_cache[absent])


if __name__ == "__main__":
    unittest.main()

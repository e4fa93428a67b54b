"""Tests of the process that starts programs."""

import os
import unittest
from unittest import mock

from harness import GUEST


class Programs(unittest.TestCase):
    def test_a_failed_start_leaves_no_descriptor(self):
        module = {"__name__": "programs"}
        source = (GUEST / "programs.py").read_text()
        # Without the last line, the call of `main`.
        exec(compile(source[: source.rindex("main()")], "programs.py", "exec"), module)
        fields = [b"xterm", b"24", b"80", b"/", b"1", b"true"]
        for name, calls in (("dup", 0), ("dup", 1), ("pipe", 0), ("fork", 0)):
            before = sorted(os.listdir("/proc/self/fd"))
            results = [os.dup(0) for _ in range(calls)] + [OSError(24, "no more")]
            with mock.patch.object(os, name, side_effect=results), self.subTest(name, calls=calls):
                with self.assertRaises(OSError):
                    module["Program"](1, [0, 1, 2], fields)
                self.assertEqual(sorted(os.listdir("/proc/self/fd")), before)


if __name__ == "__main__":
    unittest.main()

"""Tests of the refusals that a worker reports."""

import sys
import unittest

from harness import Worker


class Claims(unittest.TestCase):
    maxDiff = None

    def denied(self, source, status="exception", **options):
        """Returns the refusals that a run reports, by both run paths."""
        found = []
        for path in ("native", "python"):
            with Worker(serves="one-run", run_path=path, warm=True, **options) as worker:
                outcome = worker.cell(source)
                self.assertEqual(outcome.status, status, source)
                found.append(outcome.header.get("denied"))
        self.assertEqual(*found, source)
        return found[0]

    def test_a_run_without_refusals_reports_none(self):
        self.assertIsNone(self.denied("1", "ok"))
        self.assertIsNone(self.denied("try: open('/no/such')\nexcept OSError: pass", "ok"))
        for source in ("1 / 0", "raise OSError('no number')", "open('/dev/null', 'q')", "raise OSError(5, 'EIO', '/x')"):
            self.assertIsNone(self.denied(source), source)

    def test_an_uncaught_exception_names_its_path_and_its_line(self):
        place = {"file": "<cell 1>", "line": 2}
        for source, said in (
            ("x = 1\nopen('/no/such')", {"operation": "access", "target": "/no/such", "errno": 2}),
            ("x = 1\nopen(b'/no/./such/')", {"operation": "access", "target": "/no/such", "errno": 2}),
            ("import os\nos.listdir('/no')", {"operation": "access", "target": "/no", "errno": 2}),
            ("import subprocess\nsubprocess.run(['no-such'])", {"operation": "run", "target": "/usr/bin/no-such", "errno": 2}),
            # Given a path, subprocess uses another system call since 3.13.
            ("import subprocess\nsubprocess.run(['/no/such'])", {"operation": "run", "target": "/no/such", "errno": 2}),
            ("x = 1\nraise PermissionError(1, 'no')", {"operation": "system call", "errno": 1}),
            (
                "x = 1\nraise PermissionError(13, 'no', '/a')",
                {"operation": "access", "target": "/a", "errno": 13, "changes": "/"},
            ),
        ):
            self.assertEqual(self.denied(source), [{**said, **place, "count": 1}], source)

    def test_a_program_on_a_noexec_mount_names_the_key(self):
        # Files that are not executable, in a directory that seems to be mounted `noexec`.
        begin = (
            "import os, subprocess, tempfile, types\nplace = tempfile.mkdtemp()\n"
            "os.statvfs = lambda path: types.SimpleNamespace(f_flag=os.ST_NOEXEC if path.startswith(place) else 0)\n"
            "tool = place + '/tool'\nopen(tool, 'w').close()\n"
        )
        unmapped = ": failed to map segment from shared object"
        for source, is_named in (
            ("subprocess.run([tool])", True),
            ("raise OSError(tool + '%s')" % unmapped, True),
            # The file was removed with its temporary directory.
            ("raise ImportError(place + '/gone/library.so%s')" % unmapped, True),
            ("raise ImportError('/no/gone/library.so%s')" % unmapped, False),
            ("raise ImportError('%s')" % unmapped, False),
            ("raise PermissionError(13, 'no', tool)", False),
            ("subprocess.run(['/etc/passwd'])", False),
        ):
            with Worker() as worker:
                error = worker.cell(begin + source).error
                self.assertEqual("`filesystem.work_exec = true` allows it" in error["message"], is_named, source)
                worker.cell("import shutil; shutil.rmtree(place)")

    def test_a_call_that_creates_a_file_is_marked(self):
        for source in (
            "open('/no/new', 'w')",
            "open('/no/new', mode='xb')",
            "with open('/no/new', 'a+') as file: pass",
            "import os; os.mkdir('/no/new')",
            "import os; os.makedirs('/proc/no/new')",
            "import os; os.open('/no/new', os.O_CREAT | os.O_WRONLY)",
            "import pathlib; pathlib.Path('/no/new').write_text('x')",
        ):
            [said] = self.denied(source)
            self.assertEqual(said.get("changes"), said["target"], source)
        for source in ("open('/no/x')", "open('/no/w', 'r')", "import os; os.listdir('/no')", "import os; os.remove('/no/x')"):
            [said] = self.denied(source)
            self.assertNotIn("changes", said, source)
        # The source line of the call is known.
        if sys.version_info >= (3, 11):
            [said] = self.denied("'é'; open('/dev/null', 'w').write(open('/no/x').read())")
            self.assertNotIn("changes", said)
            [said] = self.denied("open(\n  '/no/new',\n  'w',\n)")
            self.assertEqual(said["changes"], "/no/new")

    def test_two_names_and_causes(self):
        source = "import os\ntry: os.rename('/no/a', '/no/b')\nexcept OSError as e: raise ValueError from e"
        self.assertEqual([said["target"] for said in self.denied(source)], ["/no/a", "/no/b"])
        source = "a = PermissionError(1, 'a')\na.__cause__ = a\nraise a"
        [said] = self.denied(source)
        self.assertEqual((said["count"], said["line"]), (16, 3))

    def test_arbitrary_text_is_not_a_path(self):
        for name in ("b'/\\xff'", "'/\\udcff'", "'/' + 'x' * 5000", "'a\\0b'", "7", "object()"):
            self.assertIsNone(self.denied(f"raise OSError(13, 'no', {name})"), name)

    def test_a_hostile_exception_changes_nothing(self):
        for attribute in ("errno", "filename", "__cause__", "__context__", "__traceback__"):
            for value in ("1 / 0", "object()", "exit()"):
                source = (
                    "class E(OSError):\n"
                    f"    {attribute} = property(lambda self: {value})\n"
                    "raise E(13, 'no', '/a')"
                )
                with Worker(serves="one-run", warm=True) as worker:
                    self.assertEqual(worker.cell(source).error["name"], "E", source)

    def test_imports_are_counted_even_where_the_error_is_caught(self):
        source = "for _ in range(3):\n    try: import os\n    except ImportError: pass"
        said = {"operation": "import", "target": "os", "file": "<cell 1>", "line": 2, "count": 3}
        self.assertEqual(self.denied(source, "ok", imports=["math"]), [said])
        source = "for n in range(100):\n    try: __import__('m%d' % n)\n    except ImportError: pass"
        said = self.denied(source, "ok", imports=["math"])
        self.assertEqual((len(said), said[-1]), (65, {"operation": "more", "count": 36}))
        source = "try: __import__('x' * 100_000)\nexcept ImportError: pass\n"
        source += "try: __import__('\\udcff')\nexcept ImportError: pass"
        said = self.denied(source, "ok", imports=["math"])
        self.assertEqual([len(each["target"]) for each in said], [256, 6])

    def test_each_cell_reports_its_own_refusals(self):
        with Worker(serves="session", imports=["math"]) as worker:
            for source in ("import os", "import sys"):
                [said] = worker.cell(source).header["denied"]
                self.assertEqual(said["target"], source.split()[1])
            self.assertNotIn("denied", worker.cell("1").header)


if __name__ == "__main__":
    unittest.main()

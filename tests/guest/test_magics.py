"""Tests of notebook lines that are not Python: they work, or a message says what to do instead."""

import os
import tempfile
import unittest

from harness import Worker


class Magics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.before = os.getcwd()
        os.chdir(cls.directory.name)
        cls.worker = Worker()

    @classmethod
    def tearDownClass(cls):
        cls.worker.close()
        os.chdir(cls.before)
        cls.directory.cleanup()

    def said(self, source):
        """Returns what a cell prints on both streams, in order."""
        catch = "import io, contextlib\nbuffer = io.StringIO()\n"
        self.worker.value(catch + "both = contextlib.ExitStack()")
        self.worker.value("both.enter_context(contextlib.redirect_stdout(buffer))")
        self.worker.value("both.enter_context(contextlib.redirect_stderr(buffer))")
        outcome = self.worker.cell(source)
        said = self.worker.value("both.close()\nbuffer.getvalue()")
        self.assertEqual(outcome.status, "ok", outcome.error)
        return said

    def test_redundant_magics_are_silent(self):
        self.assertEqual(self.said("%matplotlib inline\nx = 1"), "")
        self.assertEqual(self.worker.value("x"), 1)

    def test_programs_and_cells_by_ipythons_other_names(self):
        self.assertEqual(self.said("%%file b.txt\ntext\n"), "Writing b.txt\n")
        self.assertEqual(self.said("name = 'b.txt'\n%mkdir made\n%cp $name made"), "")
        self.assertEqual(self.worker.value("entries = %sx ls made\nentries"), ["b.txt"])
        self.assertEqual(self.said("%rm -r made"), "")
        self.assertEqual(self.worker.value("%system ls made 2>/dev/null || echo gone"), ["gone"])
        self.assertEqual(self.worker.value("%%python3 --out printed\nprint(2 + 1)\n"), None)
        self.assertEqual(self.worker.value("printed"), "3\n")

    def test_ineffective_magics_say_so(self):
        for line in ("%config InlineBackend.figure_format = 'svg'", "%load_ext autoreload", "%precision 3"):
            self.assertEqual(self.said(line + "\nx = 2"), line + " has no effect in a sandbox\n")
        self.assertEqual(self.worker.value("x"), 2)

    def test_time_is_printed_and_the_value_is_kept(self):
        self.assertIn("Wall time: ", self.said("%time y = 2 + 1"))
        self.assertEqual(self.worker.value("y"), 3)
        self.assertEqual(self.worker.value("%time y"), 3)
        self.assertIn("CPU times: user ", self.said("%%time\nz = 5\nz"))
        self.assertEqual(self.worker.value("%%time\nz = 5\nz"), 5)
        self.assertIn("per loop", self.said("%timeit -n 10 y + 1"))
        self.worker.value("times = []")
        self.assertIn("per loop", self.said("%%timeit -n 10 k = 2\ntimes.append(k)\n"))
        self.assertGreater(self.worker.value("sum(times)"), 2)
        self.assertEqual(self.worker.cell("%%time\n1 / 0").error["name"], "ZeroDivisionError")

    def test_options_of_timeit(self):
        self.worker.value("calls = []")
        said = self.said("%timeit -n1 -r1 calls.append(1)")
        self.assertRegex(said, r"^[0-9.]+ [nu]s \+- 0 ns per loop \(mean \+- std. dev. of 1 run, 1 loop each\)\n$")
        self.assertEqual(self.worker.value("len(calls)"), 1)
        self.assertIn("of 3 runs, 2 loops each", self.said("%%timeit -r 3 -n 2\ncalls.append(1)"))
        self.assertEqual(self.worker.value("len(calls)"), 7)
        source = "t = %timeit -qo -n 2 -r 2 calls.append(1)\nt.loops, len(t.all_runs), t.best <= t.average <= t.worst"
        self.assertEqual(self.said(source), "")
        self.assertEqual(self.worker.value(source), (2, 2, True))
        self.assertIn("per loop", self.said("%timeit -1"))

    def test_packages_that_cannot_be_installed_are_named_with_the_remedy(self):
        for line in ("!pip install -q unittest-of-nowhere", "%pip install unittest-of-nowhere"):
            said = self.said(line)
            self.assertIn("unittest-of-nowhere cannot be installed here: code cannot change the packages", said)
            self.assertIn("Name others as `packages` under [python] in the policy", said)
        self.assertIn("does not run in a sandbox", self.said("!pip uninstall pip"))

    def test_installed_packages_are_shown(self):
        directory = "of_nowhere-1.5.dist-info"
        os.mkdir(directory)
        with open(os.path.join(directory, "METADATA"), "w") as file:
            file.write("Metadata-Version: 2.1\nName: of-nowhere\nVersion: 1.5\nSummary: Nothing\n")
        self.worker.value("import sys\nsys.path.append('.')")
        self.assertIn("of-nowhere 1.5\n", self.said("!pip list"))
        self.assertIn("of-nowhere==1.5\n", self.said("%pip freeze"))
        self.assertIn("Version: 1.5\nSummary: Nothing\n", self.said("!pip show of-nowhere"))
        self.assertEqual(self.said("!pip show unittest-of-nowhere"), "Package not found: unittest-of-nowhere\n")
        self.worker.value("sys.path.remove('.')")

    def test_programs_run_if_the_policy_has_any(self):
        self.assertEqual(self.worker.value("lines = !echo a; echo b\nlines"), ["a", "b"])
        self.assertEqual(self.worker.value("(lines.n, lines.s, lines.l)"), ("a\nb", "a b", ["a", "b"]))
        self.assertEqual(self.worker.value("(lines.grep('A'), lines.fields(0))"), (["a"], ["a", "b"]))
        self.assertEqual(self.worker.value("lines = !echo a \\\n  b\nlines"), ["a b"])
        self.assertIn("exit code 3", self.said("!exit 3"))
        self.worker.value("for name in 'ab':\n    !touch $PWD/magic\n")
        self.assertTrue(os.path.exists("magic"))
        self.worker.value("%%bash\ntouch one\ntouch two\n")
        self.assertTrue(os.path.exists("one") and os.path.exists("two"))

    def test_variables_are_expanded_for_programs(self):
        self.worker.value("import types\nn, some = 'a b', types.SimpleNamespace(name='x')")
        for line, printed in (
            ("echo [$n] [{n}] [{n.upper()}] [{len(n)}] [{n[:1]}] [{n!r}]", "[a b] [a b] [A B] [3] [a] [a b]"),
            ("echo $some.name $n.txt '$n' $$n", "x a b.txt $n"),
            ("nothing=here; echo $nothing {1..3} ${nothing} $n", "here 1 2 3 here a b"),
            ("echo {missing} $n", "{missing} a b"),
            ("echo x | awk '{print $1 \"$n\"}'", "x$n"),
            ("echo x | awk '{{print $1 \"{n}\"}}'", "xa b"),
        ):
            self.assertEqual(self.worker.value("lines = !%s\nlines" % line), [printed], line)
        self.worker.value("where = 'nested'\n!mkdir -p $where/inner")
        self.assertEqual(self.worker.value("get_ipython().getoutput('ls $where')"), ["inner"])
        self.assertEqual(self.said("%ls $where"), "inner\n")

    @unittest.skipUnless(os.path.exists("/bin/bash"), "no bash")
    def test_cells_of_bash_are_run_by_it(self):
        self.worker.value("n = 1")
        self.worker.value("%%bash\n[[ 1 == 1 ]] && a=(1 2)\necho {n} $BASH_VERSION ${a[1]} > of-bash")
        with open("of-bash") as file:
            self.assertRegex(file.read(), r"^\{n\} [0-9].* 2\n$")

    def test_cells_of_other_programs_and_their_options(self):
        self.worker.value("%%script python3 -u\nopen('by-python', 'w').write(str(6 * 7))")
        self.worker.value("%%bash -s 5\necho $1 > by-bash")
        for name, content in (("by-python", "42"), ("by-bash", "5\n")):
            with open(name) as file:
                self.assertEqual(file.read(), content)
        self.worker.value("%%bash --out o --err=e\necho 1; echo 2 >&2")
        self.assertEqual(self.worker.value("o, e"), ("1\n", "2\n"))
        self.assertIn("does not work in a sandbox", self.said("%%bash --bg\necho 1"))
        self.assertIn("runs no such program", self.said("%%script no-such-program\n1"))

    def test_stderr_of_programs_is_printed_in_order(self):
        self.assertEqual(self.worker.value("lines = !echo a; echo b >&2\nlines"), ["a", "b"])

    def test_unsupported_magics_are_reported_on_stdout(self):
        self.worker.value("import io, contextlib\nout = io.StringIO()")
        self.worker.value("redirected = contextlib.redirect_stdout(out)\n_ = redirected.__enter__()")
        for line in ("!exit 3", "!pip install unittest-of-nowhere", "%nosuch", "nothing?"):
            self.worker.value(line)
        said = self.worker.value("redirected.__exit__(None, None, None)\nout.getvalue()").splitlines()
        self.assertEqual(len(said), 4, said)

    def test_a_captured_cell_prints_nothing(self):
        self.worker.value("import sys")
        self.assertEqual(self.said("%%capture out --no-display\nprint('z')\nprint('e', file=sys.stderr)"), "")
        self.assertEqual(self.worker.value("out.stdout, out.stderr, str(out)"), ("z\n", "e\n", "z\n"))
        self.assertEqual(self.said("out.show()"), "z\ne\n")
        self.assertEqual(self.said("%%capture\nprint('z')"), "")
        self.assertEqual(self.worker.cell("%%capture failed\nprint(1)\n1 / 0").error["name"], "ZeroDivisionError")
        self.assertEqual(self.said("print(failed.stdout)"), "1\n\n")
        self.assertEqual(self.worker.cell("%%capture\nx = = 1").error["name"], "SyntaxError")
        self.assertEqual(self.said("get_ipython().run_cell_magic('capture', 'c', 'print(5)')\nprint(c)"), "5\n\n")

    def test_help_prints_signature_and_documentation(self):
        self.worker.value("def f(a, b=1):\n    'Adds.'")
        for line in ("f?", "?f", "f??"):
            said = self.said(line)
            self.assertIn("Signature: f(a, b=1)", said)
            self.assertIn("Adds.", said)
        self.assertIn("not found", self.said("nothing.here?"))

    def test_files_and_directories(self):
        self.worker.value("%%writefile made.txt\nline\n")
        self.assertEqual(self.said("%cat made.txt"), "line\n")
        self.assertEqual(self.worker.value("%pwd"), os.getcwd())
        self.worker.value("%%writefile made.py\nmade = 7\n")
        self.worker.value("%run made.py")
        self.assertEqual(self.worker.value("made"), 7)
        self.worker.value("name = 'x'")
        self.worker.value('%%writefile "my {name}.py"\nimport sys\nargs = sys.argv[1:]\nsys.exit(int(args[0]))\n')
        self.assertEqual(self.said("%run 'my x.py' 0\nafter = 1"), "")
        self.assertEqual(self.worker.value("args, after"), (["0"], 1))
        self.assertEqual(self.said("%run 'my x.py' 3"), "my x.py ended with SystemExit: 3\n")
        self.worker.value("%%writefile more.py\nmore = made + 1\n")
        self.assertEqual(self.worker.value("%run -i more.py\nmore"), 8)
        self.assertIn("does not work in a sandbox", self.said("%run -p more.py"))
        self.assertIn("%run", self.said("%run"))
        self.assertEqual(self.worker.value("%env SF_A 5\n%env SF_A"), "5")
        self.assertEqual(self.said("%set_env SF_B = 6"), "env: SF_B=6\n")
        self.assertIn("no variable", self.said("%env SF_C"))

    def test_an_unknown_command_says_so(self):
        said = self.said("%nosuch thing")
        self.assertEqual(said, "%nosuch is a command of IPython that a sandbox does not have: write it in Python\n")

    def test_python_code_is_unchanged(self):
        self.assertEqual(self.worker.value("a, b = 7, 4\na \\\n%b"), 3)
        self.assertEqual(self.worker.value("'''\n!ls\n%time\nx?\n'''"), "\n!ls\n%time\nx?\n")
        self.assertEqual(self.worker.value("%matplotlib inline\n'''\n!ls\n'''"), "\n!ls\n")
        error = self.worker.cell("x = (1 +* 2)").error
        self.assertEqual(error["name"], "SyntaxError")
        error = self.worker.cell("%time 1\nx = = 2").error
        self.assertEqual((error["name"], "line 2" in error["traceback"]), ("SyntaxError", True))

    def test_exported_notebook_code(self):
        self.assertEqual(self.worker.value("get_ipython().run_line_magic('pwd', '')"), self.worker.value("%pwd"))
        self.assertEqual(self.worker.value("get_ipython().getoutput('echo a')"), ["a"])
        self.assertIsNone(self.worker.value("get_ipython().run_line_magic('matplotlib', 'inline')"))
        self.worker.value("get_ipython().run_cell_magic('writefile', 'made.txt', 'x')")
        self.assertEqual(self.worker.value("import os\nx = open('made.txt').read()\nos.remove('made.txt')\nx"), "x")
        self.assertTrue(self.worker.value("get_ipython().user_ns is globals()"))
        self.assertIn("has no IPython", self.worker.cell("get_ipython().kernel").error["message"])

    def test_libraries_find_no_ipython(self):
        os.makedirs("IPython/core")
        for name, text in (
            ("IPython/core/__init__.py", ""),
            ("IPython/__init__.py", "from .core.getipython import get_ipython\n"),
            ("IPython/core/getipython.py", "def get_ipython():\n    return None\n"),
            ("lib.py", "import IPython\ndef by_import(): return IPython.get_ipython()\ndef bare(): return get_ipython()\n"),
            ("script.py", "here = get_ipython().run_line_magic('pwd', '')\n"),
        ):
            with open(name, "w") as file:
                file.write(text)
        self.worker.value("import sys\nsys.path.append('')\nimport lib, builtins")
        self.assertEqual(self.worker.value("lib.by_import(), hasattr(builtins, 'get' + '_ipython')"), (None, False))
        self.assertEqual(self.worker.cell("lib.bare()").error["name"], "NameError")
        source = "from IPython import get_ipython\nget_ipython().run_line_magic('pwd', '')"
        self.assertEqual(self.worker.value(source), os.getcwd())
        self.assertEqual(self.worker.value("import IPython\nIPython.get_ipython().getoutput('echo a')"), ["a"])
        self.assertEqual(self.worker.value("%run script.py\nhere"), os.getcwd())
        self.assertNotIn("get_ipython", self.said("%who"))

    def test_many_such_lines_take_bounded_work(self):
        error = self.worker.cell("%time\n" * 1000).error
        self.assertEqual(error["name"], "SyntaxError")


if __name__ == "__main__":
    unittest.main()

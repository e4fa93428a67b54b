"""Tests that a run has the same outcome by the native run path and by Python alone."""

import _imp
import re
import unittest
import warnings
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader
from pathlib import Path

from harness import LIBRARY, Worker

import cell

# Whether a Python frame of the worker is below the program's.
BY_PYTHON = """
import sys
frame, found = sys._getframe(), False
while frame is not None:
    found = found or frame.f_code.co_filename == "<sandfork runner>"
    frame = frame.f_back
"""

# Programs that the native run path executes.
NATIVE = [
    "",
    "\n# nothing\n",
    "pass",
    "x = 1",
    "1",
    "x = 2\nx * 21",
    "-1",
    "2 ** 63 - 1",
    "2 ** 63",
    "-2 ** 63",
    "-2 ** 63 - 1",
    "True",
    "False",
    "None",
    "0.1 + 0.2",
    "1e300 * 1e300",
    "-0.0",
    "1e22",
    "float('nan')",
    "'text'",
    "'tab\\t \"quote\" \\\\ \\x00 \\x7f \\x1f\\n'",
    "'é'",
    "'\\ud800'",
    "'x' * (1 << 15)",
    "'x' * ((1 << 15) + 1)",
    "[1, (2, 'b'), {3: b'c'}]",
    "b'bytes'",
    "object",
    "class I(int):\n    def __repr__(self): return 'mine'\nI(3)",
    "class S(str):\n    def __len__(self): return 10 ** 9\nS('a')",
    "class F(float):\n    def __sub__(self, other): raise ValueError\nF(1)",
    "class O:\n    def __repr__(self): raise KeyError\nO()",
    "print('a')",
    "print('a', end='')",
    "import sys\nsys.stderr.write('b')\nsys.stdout.write('a')",
    "print('é ✓')",
    "x = 1 if True else 2\n(\n  x,\n)",
    "'''\nx = 1\n'''",
    "x = '''\n1\n'''",
    "f'{1 + 1}'",
    "lambda: 0\n1",
    "def f():\n    return __name__\nf()",
    "import sys\nsys.argv",
    "import sys\nhasattr(sys, 'orig_argv') and sys.orig_argv[1:]",
    "sorted(n for n in globals() if n != '__builtins__')",
    "__name__, __doc__, __package__, __loader__, __spec__, __builtins__.__name__",
    "'doc'\nx = 1\n__doc__",
    "'doc'",
    "import sys\nsys.modules['__main__'].__dict__ is globals()",
    "import __main__\n__main__.x = 5\nx",
    "x: int = 1\n__annotations__",
    "1 / 0",
    "x = 1\n\n\n1 / 0",
    "def f():\n    1 / 0\n\nf()",
    "def f(x):\n    return f(x)\nf(1)",
    "try:\n    {}['a']\nexcept KeyError as e:\n    raise RuntimeError('b') from e",
    "raise ValueError('\\ud800 x')",
    "class E(Exception):\n    def __str__(self): raise KeyError\nraise E",
    "class G(BaseException): pass\nraise G",
    "raise KeyboardInterrupt",
    "raise GeneratorExit",
    "raise StopIteration(1)",
    "open('/no/such/file')",
    "import no_such_module",
    "import sys\nsys.exit()",
    "import sys\nsys.exit(3)",
    "import sys\nsys.exit('words')",
    "import sys\nsys.exit(-1)",
    "raise SystemExit(None)",
    "exit(4)",
    "import os\nos._exit(5)",
    "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "import os, signal\nos.kill(os.getpid(), signal.SIGINT)",
    "import signal\nsignal.raise_signal(signal.SIGTERM)",
    "import signal\ndef h(*_): raise OSError(7, 'seven')\nsignal.signal(signal.SIGUSR1, h)\nsignal.raise_signal(signal.SIGUSR1)",
    "import signal\n(signal.getsignal(2) is signal.default_int_handler, signal.pthread_sigmask(0, []))",
    "import atexit\natexit.register(print, 'end')\n7",
    "import atexit\ndef f(): 1 / 0\natexit.register(f)\n7",
    "import atexit\ndef f(): raise SystemExit(9)\natexit.register(f)\n7",
    "import threading, time\nt = threading.Thread(target=lambda: (time.sleep(0.05), print('late')))\nt.start()\n8",
    "import _thread, time\n_thread.start_new_thread(time.sleep, (60,))\n8",
    "import threading\n9",
    "import sys, io\nsys.stdout = io.StringIO()\nprint('lost')\n1",
    "import sys\nsys.stdout = None\n1",
    "import sys\ndel sys.stdout\n1",
    "import sys\nsys.stdout.close()\n1",
    "import os, sys\nos.close(1)\nsys.stdout.write('x')\n1",
    "import sys\nclass S:\n    closed = property(lambda _: 1/0)\nsys.stdout = S()",
    "import sys\nsys.stdout.flush = lambda: 1 / 0\n1",
    "import sys\nsys.modules = None\n1",
    "import sys\nsys.modules.clear()\n1",
    "import sys\nclass M(dict):\n    def get(self, *_): raise KeyError('mine')\nsys.modules = M(sys.modules)\n1",
    "import builtins\nbuiltins.len = builtins.repr = None\n[1]",
    "import builtins\nbuiltins.__import__ = None\n[b'x']",
    "import os\nos.write = os.read = None\n1",
    "import os\nif os.fork() == 0:\n    1 / 0\nos.wait()[1]",
    "import os\npid = os.fork()\npid and os.wait()[1]",
    "import os\nif os.fork():\n    os.wait()\nprint('both')",
    "import os, atexit\natexit.register(print, 'end')\nif os.fork():\n    os.wait()\n1",
    "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()",
    "import inspect\ndef f():\n    return 1\ninspect.getsource(f)",
    "import linecache\n[linecache.getline('<cell 1>', n) for n in (1, 2, 3)]",
    "import linecache\nlinecache.clearcache()\n1 / 0",
    "import asyncio\nasync def f():\n    return 8\nasyncio.run(f())",
    "import asyncio\nasyncio.get_running_loop()",
    "x = '\u2028\x85'\n1 / 0",
    "import os\nclass D:\n    def __del__(self): os.wait() if os.fork() else print('child')\nd = D()\n1",
    "class D:\n    def __del__(self): print('gone', x)\nd, x = D(), 3\n[1]",
    "import sys\nclass D:\n    def __del__(self): sys.stdout.close()\nd = D()\n1",
    "import sys\nsys.stdout.write('begun')\nclass D:\n    def __del__(self): import os; os._exit(3)\nd = D()\n1",
    "import os, sys\nif os.fork() == 0:\n    sys.stderr = None\n    1 / 0\nos.wait()[1]",
    "class E(SystemExit):\n    code = property(lambda _: 1 / 0)\nraise E",
    "import sys\nsys.exit(2 ** 64)",
    "import sys\nsys.excepthook = lambda *a: print('hook', a[1])\n1 / 0",
    "import sys\nsys.setrecursionlimit(60)\ndef f(): f()\nf()",
    "import sys\nsys.settrace(lambda *_: None)\n1",
    "def g():\n    yield 1\nnext(g())",
    "class D:\n    def __del__(self): print('gone')\nd = D()\ndel d\n1",
    "class D:\n    def __del__(self): print('gone')\nD()\n1",
    "print('é')  # ✓\nx = 'é'\nx == 'é'",
    "x = lambda y: y\nx(3)",
    "if True:\n    x = 3\nelse:\n    x = 4",
    "for i in range(3): print(i)",
    "@print\ndef f(): pass",
]

# Programs that the native run path leaves to Python.
LEFT = [
    "1; 2",
    "x = 1; x",
    "def f(:",
    "x = 1\n1 +",
    "(1",
    "'a",
    "x = 'a' b",
    "  1",
    "if 1:\n1",
    "return 1",
    "yield 1",
    "1\\",
    "\\\n1",
    "'\\d'",
    "x = '\\d'\n1",
    "x = 1\nx is 1",
    "assert (1, 'always')\n1",
    "1()",
    "1\n'\\d'",
    "# coding: utf-8\n1",
    "from __future__ import annotations\nx: y\n__annotations__",
    "x = 1\r\nx",
    "x = 1\x0c\nx",
    "x = 1\x00",
    "import asyncio\nasync def f():\n    return 7\nawait f()",
    "import asyncio\nawait asyncio.sleep(0)\nt = asyncio.create_task(asyncio.sleep(0, 5))\nawait t",
    "import asyncio\nasync def f(): return 7\nawait f()\nasyncio.run",
    "*(1, 2),",
    "[await_ for await_ in ()] or await None",
]


def shown(text):
    """Removes addresses, and the recursion depth, which depends on the worker's own frames."""
    return re.sub(r"0x[0-9a-f]+|repeated \d+ more", "...", text)


def outcome(program, run_path, **options):
    settings = {name: options.pop(name) for name in ("warm", "rehearses", "cold") if name in options}
    with Worker(serves="one-run", run_path=run_path, **settings) as worker:
        try:
            found = worker.cell(program, **options)
            found = (found.header, repr(found.value))
        except Exception as error:
            # The program has ended the process.
            found = type(error).__name__
        code = worker.close_link()
        out, err = worker.output()
        return shown(repr((found, out, err, code)))


def shows_lines(source):
    """Whether a program shows source lines, which a warm interpreter finds differently."""
    return any(word in source for word in ("/ 0", "trace", "linecache", "inspect", "warn", "def f(): f()"))


class RunPaths(unittest.TestCase):
    maxDiff = None

    def same(self, program, **options):
        paths = [outcome(program, path, **options) for path in ("native", "python")]
        self.assertEqual(*paths, program)

    def by_python(self, source, run_path="native", **options):
        """Whether Python code of the worker runs the program."""
        before = BY_PYTHON + "print('by Python' if found else 'natively')\n"
        with Worker(serves="one-run", run_path=run_path, **options) as worker:
            try:
                worker.cell(before + source)
            except Exception:
                pass
            worker.close_link()
            return worker.output()[0].startswith("by Python")

    def test_programs_that_are_executed_natively(self):
        for source in NATIVE:
            with self.subTest(source):
                self.same(source, warm=shows_lines(source))

    def test_programs_that_are_left_to_python(self):
        for source in LEFT:
            with self.subTest(source):
                self.same(source, warm=shows_lines(source))

    def test_cold_and_rehearsed_workers(self):
        for source in ("1", "1 / 0", "x = 1", "[1]", "sorted(globals())", "import linecache\nlen(linecache.cache)"):
            for options in ({}, {"warm": True, "rehearses": True}, {"rehearses": True}):
                with self.subTest(source, **options):
                    self.same(source, cold=True, **options)

    def test_names_and_arguments(self):
        source = "import sys\nprint(sys.argv, getattr(sys, 'orig_argv', [])[1:], globals().get('__file__'))\n1 / 0"
        for filename in ("<string>", "<stdin>", "<cell 7>", "<é>", "<a\\b>", "script.py", "/no/where/script.py", "<-m>", ""):
            for argv in ([], ["a", "é", ""]):
                with self.subTest(filename=filename, argv=argv):
                    self.same(source, filename=filename, argv=argv, warm=True)
        for options in ({"source": "text"}, {"source": "file"}, {"then": "end"}, {"last": "text"}, {"last": "statement"}):
            self.same("x = 1\nx + 1", warm=True, **options)

    def test_source_of_any_length(self):
        for length in (4000, 4096, 5000, 60_000, 70_000):
            self.same("x = '%s'\nlen(x)" % ("y" * length), warm=True)
        self.same(b"x = '\xff'\n1", warm=True)

    def test_the_native_run_path_is_used(self):
        # A program that ends with a statement, and one that ends with an expression.
        for source in ("", "1", "[1]", "print(2)", "def f():\n    return f'{1}'\nf()"):
            self.assertFalse(self.by_python(source, warm=True), source)
            self.assertFalse(self.by_python(source, warm=True, rehearses=True), source)
            self.assertTrue(self.by_python(source, run_path="python", warm=True), source)
        for source in ("1; 2", "await None", "x = '\\d'"):
            self.assertTrue(self.by_python(source, warm=True), source)

    def test_an_interrupt_before_the_program(self):
        for path in ("native", "python"):
            with Worker(serves="one-run", run_path=path, warm=True) as worker:
                worker.begin("while True: pass")
                worker.interrupt()
                try:
                    self.assertEqual(worker.outcome().error["name"], "KeyboardInterrupt")
                except Exception:
                    # The interrupt may come while Python waits for the program.
                    self.assertEqual(path, "python")

    def test_exhausted_memory(self):
        source = (
            "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\n"
            "kept = []\nwhile True:\n    kept.append(bytearray(100))"
        )
        for path in ("native", "python"):
            with Worker(serves="one-run", run_path=path, warm=True) as worker:
                self.assertEqual(worker.cell(source).error["name"], "MemoryError", path)

    def test_a_guest_without_its_socket(self):
        for path in ("native", "python"):
            with Worker(serves="one-run", run_path=path, warm=True) as worker:
                with self.assertRaises(Exception):
                    worker.cell("import os\nos.close(1023)\n1")
                self.assertEqual(worker.close_link(), 0)

    def test_the_supervisor_ends(self):
        for path in ("native", "python"):
            worker = Worker(serves="one-run", run_path=path, warm=True)
            self.assertEqual(worker.close(), 0, path)


class Cells(unittest.TestCase):
    """Tests that compiling cells without a syntax tree gives the same code."""

    @classmethod
    def setUpClass(cls):
        loader = ExtensionFileLoader("_sandfork", LIBRARY)
        cls.native = _imp.create_dynamic(ModuleSpec("_sandfork", loader, origin=LIBRARY))

    def text(self, source, wanted="expression"):
        return cell.compile_text(self.native, source, "<cell 1>", wanted)

    def tree(self, source):
        tree = cell.parse(source, "<cell 1>")
        return cell.compile_both(tree, cell.pop_last_expression(tree), "<cell 1>")

    def test_the_code_of_real_programs_is_the_same(self):
        files = sorted(Path(unittest.__file__).parents[1].glob("*.py"))[:80]
        compiled = 0
        for file in files:
            for ending in (b"", b"\nlen(\n  dir())\n"):
                # An empty file may or may not have code.
                source = b"import sys\n" + file.read_bytes() + ending
                codes = self.text(source)
                if codes is not None:
                    compiled += 1
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")
                        self.assertEqual(codes, self.tree(source), file)
        self.assertGreater(compiled, len(files))

    def test_cells_that_need_a_tree(self):
        for source in (b"1;", b"await f()", b"%time 1", b"x = '\\d'", b"from __future__ import annotations", b"1 +"):
            self.assertIsNone(self.text(source), source)
        for source, is_compiled in ((b"x = 1", False), (b"f(\n1)", True), (b"if x:\n  1", False), (b"", False)):
            self.assertIs(self.text(source, "statement") is not None, is_compiled, source)
        self.assertEqual(self.text(b"1", "nothing")[1], None)

    def test_warning_filters_are_unchanged(self):
        before = list(warnings.filters)
        self.text(b"x = '\\d'\n1")
        self.text(b"1")
        self.assertEqual(warnings.filters, before)
        filters, warnings.filters = warnings.filters, tuple(before)
        self.assertIsNone(self.text(b"1"))
        warnings.filters = filters

    def test_an_exception_is_at_its_lines(self):
        with Worker(serves="session") as worker:
            error = worker.cell("def f():\n    1 / 0\n\nx = 1\n(\n  f())").error
            self.assertEqual(re.findall("line \\d+", error["traceback"]), ["line 6", "line 2"])
            found = worker.value("import sys\nsys._getframe().f_lineno, sys._getframe().f_code.co_firstlineno")
            tree = worker.value("import sys;\nsys._getframe().f_lineno, sys._getframe().f_code.co_firstlineno;")
            self.assertEqual(found, tree)


if __name__ == "__main__":
    unittest.main()

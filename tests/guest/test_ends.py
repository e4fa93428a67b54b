"""Tests that a program ends as under `python3`: open files are flushed, and remaining objects finalized."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from harness import Worker

DELETED = """
import sys
class D:
    def __init__(self, name): self.name = name
    def __del__(self): print("gone", self.name, sys.__name__, other, end=";")
"""
OWN_MODULE = """
import os, sys
where = os.path.dirname(sys.argv[1])
sys.path.insert(0, where)
def write(name, text):
    os.makedirs(os.path.dirname(os.path.join(where, name)), exist_ok=True)
    with open(os.path.join(where, name), "w") as file: file.write(text)
write("report.py", "import csv, sys\\n_f = open(sys.argv[1], 'w')\\n_w = csv.writer(_f)\\n"
    "def row(*cells): _w.writerow(cells)\\n")
"""
LOGGER = """
import sys
class Logger:
    def __init__(self):
        self.terminal, self.log = sys.stdout, open(sys.argv[1], "a")
    def write(self, text):
        self.terminal.write(text)
        self.log.write(text)
"""
# Each writes to the file `sys.argv[1]`, or prints.
PROGRAMS = [
    LOGGER + "    def flush(self): pass\nsys.stdout = Logger()\nprint('hello')",
    LOGGER + "    def flush(self): pass\nsys.stderr = Logger()\n1 / 0",
    LOGGER + "    def __del__(self): self.terminal.write('gone')\n    def flush(self): 1 / 0\nsys.stdout = Logger()\nprint('x')",
    LOGGER + "    closed = property(lambda _: 1 / 0)\n    def flush(self): self.write('flushed')\nsys.stdout = Logger()\nprint('x')",
    LOGGER + "    closed = True\nsys.stdout = Logger()\nprint('x')",
    LOGGER + "    def flush(self): 1 / 0\nsys.stderr = Logger()",
    LOGGER + "    def flush(self): 1 / 0\nsys.stdout = Logger()\nsys.exit(4)",
    "import sys, gzip\nsys.stdout = gzip.open(sys.argv[1], 'wt')\nprint('hello')",
    "import sys\nsys.stdout.close()",
    "import sys\nsys.stdout = None",
    "import sys\ndel sys.stdout, sys.stderr",
    "import sys\nsys.stdout.detach()",
    "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), 'utf-8')\nprint('hello')",
    "import codecs, sys\nsys.stdout = codecs.getwriter('utf-8')(sys.stdout.detach())\nprint('hello')",
    "import codecs, sys\nsys.stderr = codecs.getwriter('utf-8')(sys.stderr.detach())\nprint('hello', file=sys.stderr)",
    "import os\nos.close(1)\nprint('lost', end='')",
    "import sys\nsys.stderr = open(sys.argv[1], 'w')\n1 / 0",
    "import sys\nsys.stderr = None\n1 / 0",
    "import atexit, sys\n@atexit.register\ndef last(): print(sys.last_type, sys.last_value, sys.last_traceback.tb_lineno)\n\n1 / 0",
    OWN_MODULE + "import report\nreport.row(1, 2)",
    OWN_MODULE + "__import__('report').row(1, 2)",
    OWN_MODULE + "def f():\n    from report import row\n    row(1, 2)\nf()\n1 / 0",
    OWN_MODULE + "import signal, report\nreport.row(1, 2)\nsignal.signal(10, lambda *_: report.row)",
    OWN_MODULE + "write('pack/__init__.py', 'import report')\nwrite('pack/inner.py', 'import pack, report\\nreport.row(3)')\n"
    "import pack.inner",
    "import sys, types\nsys.modules['made'] = m = types.ModuleType('made')\nm.f = open(sys.argv[1], 'w')\nm.f.write('hello')\ndel m",
    "import sys, json\njson.held = open(sys.argv[1], 'w')\njson.held.write('hello')",
    "import sys, builtins\nbuiltins.held = open(sys.argv[1], 'w')\nheld.write('hello')",
    "import sys\nclass F:\n    f = open(sys.argv[1], 'w')\n    def find_spec(self, name, *_): name == 'missing' and self.f.write('x')\n"
    "sys.meta_path.insert(0, F())\ntry: import missing\nexcept ImportError: pass",
    "import sys, contextvars\nv = contextvars.ContextVar('v')\nv.set(open(sys.argv[1], 'w'))\nv.get().write('hello')\ndel v",
    "import sys, signal\nclass J:\n    def __init__(self): self.f, self.h = open(sys.argv[1], 'w'), {'add': self.add}\n"
    "    def add(self, text): self.f.write(text)\nj = J()\nj.h['add']('data')\ndef stop(*_): pass\nsignal.signal(15, stop)",
    DELETED + "import gc\nother = 3\na = D(1)\na.itself = a\ngc.collect()\ndel a\nb = D(2)",
    "import sys\nf = open(sys.argv[1], 'w')\nf.write('hello')",
    "import sys, csv\nw = csv.writer(open(sys.argv[1], 'w'))\nw.writerow([1, 2])",
    "import sys\nf = open(sys.argv[1], 'w')\nf.write('hello')\n1 / 0",
    "import sys\nf = open(sys.argv[1], 'w')\nf.write('hello')\nsys.exit(3)",
    "import sys\nf = open(sys.argv[1], 'w')\ndef g(): f.write('hello')\ng()",
    "import sys\ndef g():\n    f = open(sys.argv[1], 'w')\n    f.write('hello')\n    1 / 0\ng()",
    "import sys, gzip\nf = gzip.open(sys.argv[1], 'wb')\nf.write(b'hello')\n[1]",
    "import sys, zipfile\nf = zipfile.ZipFile(sys.argv[1], 'w')\nf.writestr(zipfile.ZipInfo('a'), 'hello')",
    "import sys, signal\nf = open(sys.argv[1], 'w')\nf.write('hello')\ndef g(*_): pass\nsignal.signal(10, g)",
    DELETED + "import gc\ngc.disable()\nother, d = 3, D(1)\nd.itself = d\ndel d",
    "import sys, __main__\nf = open(sys.argv[1], 'w')\nf.write('hello')",
    "import sys, os\nf = open(sys.argv[1], 'w')\nf.write('hello')\nif not os.fork():\n    f.write(' child')\nelse:\n    os.wait()",
    "import sys, os, threading, time\nf = open(sys.argv[1], 'w')\nif os.fork():\n    os.wait()\nelse:\n"
    "    threading.Thread(target=lambda: (time.sleep(0.1), f.write('child'))).start()",
    DELETED + "other, d, e = 3, D(1), D(2)",
    DELETED + "other, d = 3, D(1)\n1 / 0",
    DELETED + "other, d = 3, D(1)\nd.itself = d\ndel d",
    DELETED + "import typing\nother, d, t = 3, D(1), typing.Optional[D]",
    DELETED + "import atexit\nother, d = 3, D(1)\natexit.register(print, 'exit')",
    "class D:\n    def __del__(self): 1 / 0\nd = D()",
    "class D:\n    def __del__(self): raise SystemExit(3)\nd = D()",
    "import weakref\nclass D: pass\nd = D()\nweakref.finalize(d, print, 'finalized')",
    "def g():\n    try: yield\n    finally: print('closed')\nx = g()\nnext(x)",
    "import asyncio\nasync def f(): return 7\nloop = asyncio.new_event_loop()\nt = loop.create_task(f())\n"
    "print(loop.run_until_complete(t))\nloop.close()",
    "import asyncio\nclass C:\n    def create_task(self, x): return x\nasync def f(): return C().create_task(8)\n"
    "C().create_task(7)\nprint(asyncio.run(f()))",
    "class E(SystemExit):\n    code = property(lambda _: 1 / 0)\nraise E('words')",
    "import sys\nsys.exit(-(2 ** 63))",
    "class I(int):\n    def __and__(self, _): return 9\nraise SystemExit(I(3))",
    "import sys\nsys.excepthook = lambda *a: print('hook', a, a[2].tb_lineno, a[1].__traceback__ is a[2])\n\n1 / 0",
    "import sys\nsys.excepthook = lambda *a: sys.exit(7)\n1 / 0",
    "import sys\ndef hook(*_): raise ValueError(5)\nsys.excepthook = hook\n1 / 0",
    "import sys\nsys.excepthook = lambda *a: print('hook')\nsys.exit('words')",
    "import sys\nsys.excepthook = None\n1 / 0",
    "import sys\ndel sys.excepthook\n1 / 0",
]


def shown(path, out, err, code):
    """Returns the results of a program without addresses and the lines that tracebacks quote, which vary."""
    left = b""
    if os.path.exists(path):
        with open(path, "rb") as file:
            left = file.read()
    # The time in the header of gzip.
    left = left[:4] + left[8:] if left[:2] == b"\x1f\x8b" else left
    return left if b"\0" in left else plain(left.decode()), plain(out), plain(err), code


def plain(text):
    lines = [line for line in text.splitlines() if line[:4] != "    " and line != "sys.excepthook is missing"]
    return re.sub("0x[0-9a-f]+", "...", "\n".join(lines))


def by_python(program, path):
    command = [sys.executable, "-c", program, path]
    # A worker's output is buffered.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=30, env=env)
    return shown(path, ended.stdout, ended.stderr, ended.returncode)


def by_worker(program, path, run_path, warm):
    with Worker(serves="one-run", run_path=run_path, warm=warm) as worker:
        outcome = worker.cell(program, filename="<string>", argv=[path])
        code = worker.close_link()
        out, err = worker.output()
        # The supervisor's caller prints the traceback after the program's output.
        return shown(path, out, outcome.error.get("traceback", "") + err, code)


class Ends(unittest.TestCase):
    maxDiff = None

    def test_programs_end_as_under_python(self):
        for program in PROGRAMS:
            found = []
            for way in (None, ("native", False), ("native", True), ("python", False)):
                with tempfile.TemporaryDirectory() as directory:
                    path = os.path.join(directory, "file")
                    found.append(by_python(program, path) if way is None else by_worker(program, path, *way))
                with self.subTest(program, way=way):
                    self.assertEqual(found[0], found[-1])

    def test_unwanted_value_is_not_rendered(self):
        source = "class V:\n    def __repr__(self): print('shown')\ndef main(): return V()\nmain()"
        for run_path in ("native", "python"):
            with Worker(serves="one-run", run_path=run_path) as worker:
                outcome = worker.cell(source, last="nothing")
                self.assertEqual((outcome.status, outcome.value, worker.output()), ("ok", None, ("", "")))
            with Worker(serves="one-run", run_path=run_path) as worker:
                self.assertEqual(worker.cell("6 * 7", last="nothing").value, None)
        with Worker() as worker:
            self.assertEqual(worker.cell("6 * 7", last="nothing").value, None)
            self.assertEqual(worker.cell("6 * 7").value, 42)

    def test_referenced_variables_are_finalized(self):
        source = (
            "import sys\nclass D:\n    def __del__(self): sys.stdout.write(name())\n"
            "def name(): return 'gone'\nd = D()\nsys.kept = D"
        )
        with Worker(serves="one-run") as worker:
            worker.cell(source)
            worker.close_link()
            self.assertEqual(worker.output(), ("gone", ""))

    def test_an_excepthook_replaces_the_traceback(self):
        source = "import sys\nsys.excepthook = lambda *a: print('hook')\n1 / 0"
        for serves, options in (("one-run", {}), ("session", {"then": "end"})):
            with Worker(serves=serves) as worker:
                error = worker.cell(source, **options).error
                self.assertEqual(error, {"name": "ZeroDivisionError", "message": "division by zero", "traceback": ""})
        # A cell of a session continues.
        with Worker() as worker:
            self.assertIn("1 / 0", worker.cell(source).error["traceback"])
            self.assertEqual(worker.output()[0], "")

    def test_an_end_without_the_modules(self):
        for source in ("sys.modules = None", "sys.modules.clear()", "sys.modules['__main__'] = 5", "del sys.modules['__main__']"):
            with Worker(serves="one-run") as worker:
                worker.cell("import sys\n%s\n1" % source)
                self.assertIsNotNone(worker.close_link())


if __name__ == "__main__":
    unittest.main()

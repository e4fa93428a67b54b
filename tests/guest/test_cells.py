"""Tests of cells: one namespace, values, tracebacks, `await`, input, endings."""

import re
import subprocess
import sys
import unittest

from harness import DATA, Ended, Worker, values


class Cells(unittest.TestCase):
    def setUp(self):
        self.worker = Worker(warm=True)
        self.addCleanup(self.worker.close)

    def value(self, source, **options):
        return self.worker.value(source, **options)

    def fail(self, source, **options):
        outcome = self.worker.cell(source, **options)
        self.assertEqual(outcome.status, "exception", outcome)
        return outcome.error

    def test_cells_share_a_namespace(self):
        self.assertIsNone(self.value("x = 1\ndef f():\n    return x"))
        self.assertEqual(self.value("x += 1\nf()"), 2)
        self.assertEqual(self.value("import __main__; __main__.x, __name__"), (2, "__main__"))
        self.assertIsNone(self.value("# nothing"))
        self.assertEqual(self.value("'a text'"), "a text")
        self.assertIn("NameError", self.fail("del x\nx")["traceback"])

    def test_a_coding_line_is_ignored_in_text(self):
        for line in ("# coding: latin-1", "# coding: klingon", "# coding: utf-16"):
            self.assertEqual(self.value(f"{line}\n'\u00e9'"), "\u00e9")
        self.assertIn("'\u00e9' + 1", self.fail("# coding: latin-1\n'\u00e9' + 1")["traceback"])
        self.assertEqual(self.value("\ufeff# coding: latin-1\n'\u00e9'"), "\u00e9")

    def test_main_has_annotations_before_any_cell(self):
        for worker in (self.worker, Worker(serves="run"), Worker(serves="run", run_path="python")):
            self.addCleanup(worker.close)
            if sys.version_info < (3, 14):
                self.assertEqual(worker.value("__annotations__"), {})
            else:
                self.assertIs(worker.value("'__annotations__' in globals()"), False)

    def test_an_empty_cell_has_no_value(self):
        for source in ("", " \n\t\n", "\ufeff", "# coding", "coding = 1"):
            self.assertIsNone(self.value(source))

    def test_a_small_cell_is_one_frame(self):
        for source in ("1", "x = 1", "'a'", "[1, {2: 3}]", "None", "print(1)", "1/0"):
            before = self.worker.frames
            self.worker.cell(source)
            self.assertEqual(self.worker.frames, before + 1, source)

    def test_tracebacks_contain_only_guest_lines(self):
        self.value("def f(n):\n    return 1 / n")
        error = self.fail("y = 1\nf(0)")
        self.assertEqual((error["name"], error["message"]), ("ZeroDivisionError", "division by zero"))
        lines = [line for line in error["traceback"].splitlines() if set(line) - set(" ^~")]
        self.assertEqual(
            lines,
            [
                "Traceback (most recent call last):",
                '  File "<cell 2>", line 2, in <module>',
                "    f(0)",
                '  File "<cell 1>", line 2, in f',
                "    return 1 / n",
                "ZeroDivisionError: division by zero",
            ],
        )
        self.assertIn('File "<cell 3>", line 1', self.fail("1 +")["traceback"])
        for end in ("\u2028", "\x85", "\x1c", "\x0b", "\x0c"):
            self.assertIn("    1 / 0\n", self.fail("x = '%s'\n1 / 0\n" % end)["traceback"])
        self.assertIn("    1 / 0\n", self.fail("x = 1\r\ny = 2\r1 / 0")["traceback"])
        self.assertNotIn("sandfork", self.fail("1 +")["traceback"])

    def test_quoted_lines_survive_a_cleared_cache(self):
        self.value("def f():\n    raise KeyError(1)")
        self.assertIn("raise KeyError(1)", self.fail("import linecache\nlinecache.clearcache()\nf()")["traceback"])
        source = self.value("import inspect\ndef g(): return 5\ninspect.getsource(g)")
        self.assertEqual(source, "def g(): return 5\n")

    def test_future_imports_apply_to_the_last_expression(self):
        source = "from __future__ import annotations\nf = lambda: 0\n(lambda x: x)(3)"
        self.assertEqual(self.value(source), 3)

    def test_argv_and_file(self):
        found = self.value("import sys\nsys.argv, '__file__' in globals()", argv=["a"])
        self.assertEqual(found, (["<cell 1>", "a"], False))
        found = self.value("sys.argv[0], __file__, __loader__.get_source('x')[:3]", filename="a.py")
        self.assertEqual((found[0], found[2]), ("a.py", "sys"))
        self.assertTrue(found[1].endswith("/a.py"))
        self.assertFalse(self.value("'__file__' in globals()"))

    def test_exits_leave_the_session_alive(self):
        for source, code in (("raise SystemExit", 0), ("import sys\nsys.exit(300)", 44), ("exit(2 ** 64)", 255), ("exit('why')", 1)):
            outcome = self.worker.cell(source)
            self.assertEqual((outcome.status, outcome.header["exit_code"]), ("exit", code))
        self.assertEqual(self.worker.output(), ("", "why\n"))
        self.assertEqual(self.value("1"), 1)

    def test_output_is_flushed_at_the_end_of_a_cell(self):
        self.value("import sys\nprint('a', end='')\nsys.stderr.write('b')")
        self.assertEqual(self.worker.output(), ("a", "b"))

    def test_await(self):
        self.value("import asyncio\nq = asyncio.Queue()\nasync def put():\n    await q.put(3)")
        self.assertEqual(self.value("await put()\nawait q.get()"), 3)
        self.value("async def later():\n    await asyncio.sleep(0.01)\n    return 5")
        # Also after a cell has run its own event loop, which is allowed.
        self.assertEqual(self.value("asyncio.run(later())"), 5)
        self.assertEqual(self.value("task = asyncio.create_task(later())\nawait asyncio.sleep(0)\ntask.done()"), False)
        self.assertEqual(self.value("await task"), 5)
        self.assertEqual(self.value("async with asyncio.Lock():\n    x = 6\nx"), 6)
        self.assertEqual(self.value("x = await later()", last="statement"), 5)
        error = self.fail("async def f():\n    await asyncio.sleep(0)\n    1 / 0\nawait f()")
        self.assertEqual(error["traceback"].count("File "), 2)
        self.assertNotIn("asyncio/", error["traceback"])

    def test_a_cell_uses_one_loop_from_its_first_statement(self):
        self.value("import asyncio\nasync def later():\n    await asyncio.sleep(0.01)\n    return 5")
        self.assertEqual(self.value("task = asyncio.create_task(later())\nawait task"), 5)
        self.assertEqual(self.value("a, b = map(asyncio.ensure_future, [later(), later()])"), None)
        self.assertEqual(self.value("await asyncio.gather(a, b)"), [5, 5])
        self.assertEqual(self.value("first = asyncio.get_running_loop()"), None)
        self.assertTrue(self.value("first is asyncio.get_running_loop()"))
        # A cell without `await` may run its own event loop.
        self.assertEqual(self.value("asyncio.run(later())"), 5)
        own = "own = asyncio.new_event_loop()\nt = own.create_task(later())\nown.run_until_complete(t)"
        self.assertEqual(self.value(own), 5)
        client = "class C:\n    def create_task(self): return later()\nasyncio.run(C().create_task())"
        self.assertEqual(self.value(client), 5)
        self.assertTrue(self.value("first is asyncio.get_running_loop()"))

    def test_tasks_continue_in_later_cells(self):
        self.value("import asyncio\nseen = []")
        self.value("async def count():\n    for n in range(3):\n        seen.append(n)\n        await asyncio.sleep(0.001)")
        self.value("task = asyncio.create_task(count())")
        while not self.value("task.done()"):
            pass
        self.assertEqual(self.value("seen"), [0, 1, 2])
        # A task that ends or fails affects neither the session nor the other tasks.
        self.value("async def stop(error):\n    raise error")
        for error in ("SystemExit(3)", "KeyboardInterrupt()", "ValueError(4)"):
            self.value("ended = asyncio.create_task(stop(%s)); task = asyncio.create_task(count())" % error)
            while not self.value("task.done() and ended.done()"):
                pass

    @unittest.skipIf(sys.version_info < (3, 11), "tasks copy their context before Python 3.11")
    def test_cells_share_their_context(self):
        self.value("import asyncio, contextvars\nv = contextvars.ContextVar('v')\nv.set(1)")
        self.assertEqual(self.value("await asyncio.sleep(0)\nv.get()"), 1)
        self.value("await asyncio.sleep(0)\nv.set(2)")
        self.assertEqual(self.value("v.get()"), 2)
        self.value("v.set(3)")
        self.assertEqual(self.value("await asyncio.sleep(0, v.get())"), 3)

    def test_a_last_cell_cancels_its_tasks(self):
        source = "import asyncio\nasync def f():\n    try:\n        await asyncio.sleep(60)\n    finally:\n        print('ended')\nt = asyncio.create_task(f())\nawait asyncio.sleep(0)"
        self.assertEqual(self.worker.cell(source, then="end").status, "ok")
        self.assertEqual(self.worker.output()[0], "ended\n")

    def test_the_last_value(self):
        self.value("6 * 7")
        self.assertEqual(self.value("_ + 1"), 43)
        self.value("x = 5\nNone")
        self.assertEqual(self.value("_"), 43)
        for name in ("Out", "__", "_3"):
            self.assertIn("which is `_`", self.fail(name)["message"])
        self.assertNotIn("`_`", self.fail("other")["message"])

    def test_the_last_exception_is_that_of_an_interactive_session(self):
        self.value("import gc, sys, traceback, weakref\nclass Held: pass")
        names = "last_type", "last_value", "last_traceback", *(["last_exc"] if sys.version_info >= (3, 12) else [])
        self.assertEqual(self.value("[name for name in %r if hasattr(sys, name)]" % (names,)), [])
        fails = "def fails():\n    held = Held(); kept.append(weakref.ref(held))\n    1 / 0\nfails()"
        self.value("kept = []")
        shown = self.fail(fails)["traceback"]
        # Like `traceback.print_last`, which has a bug in 3.13.0.
        again = "''.join(traceback.format_exception(sys.last_type, sys.last_value, sys.last_traceback))"
        self.assertTrue(self.value("%s == %r" % (again, shown)))
        last = "[sys.last_type is ZeroDivisionError, sys.last_value.__traceback__ is sys.last_traceback]"
        self.assertEqual(self.value(last), [True, True])
        if len(names) == 4:
            self.assertTrue(self.value("sys.last_exc is sys.last_value"))
        # A debugger needs the frames. Only the last exception's are kept, and never the cell's syntax tree.
        self.assertTrue(self.value("sys.last_traceback.tb_next.tb_frame.f_locals['held'] is kept[0]()"))
        trees = "import ast\nsum(isinstance(found, ast.AST) for found in gc.get_objects())"
        before = self.value(trees)
        self.fail("x = %s\n1 / 0" % list(range(1000)))
        self.assertLess(self.value(trees), before + 100)
        self.assertIsNone(self.value("gc.collect()\nkept[0]()"))
        # The traceback of a MemoryError is not kept.
        self.fail("def fills():\n    raise MemoryError\nfills()")
        self.assertEqual(self.value("[name for name in %r if hasattr(sys, name)]" % (names,)), [])
        self.fail("raise KeyboardInterrupt")
        self.assertTrue(self.value("sys.last_type is KeyboardInterrupt"))
        self.worker.cell("raise SystemExit(3)")
        self.assertTrue(self.value("sys.last_type is KeyboardInterrupt"))

    def test_a_traceback_where_no_memory_is_left_to_import_a_module(self):
        self.value(
            "import sys\nclass Full:\n    def find_spec(self, name, *_):\n"
            "        if name == 'traceback':\n            raise MemoryError\n"
            "sys.modules.pop('traceback', None)\nsys.meta_path.insert(0, Full())"
        )
        error = self.fail("def fills():\n    raise MemoryError\n\nfills()")
        said = r'''Traceback \(most recent call last\):
  File "[^"]+", line 4, in <module>
  File "[^"]+", line 2, in fills
MemoryError
'''
        self.assertRegex(error["traceback"], "^" + said + "$")

    def test_a_rehearsal_leaves_nothing(self):
        for serves in ("session", "one-run"):
            for warm in (False, True):
                with Worker(serves=serves, warm=warm, rehearses=True) as worker:
                    value = worker.value("import builtins\n[hasattr(builtins, '_'), *(n for n in globals() if n[0] != '_')]")
                    self.assertEqual(value, [False, "builtins"])

    def test_a_markdown_fence_is_stripped(self):
        self.assertEqual(self.value("\n```python\nx = 1\nx + 1\n```\n"), 2)
        self.assertEqual(self.value("```\n%pwd\n```"), self.value("import os\nos.getcwd()"))
        self.assertIn("line 3", self.fail("```python\n\n1 / 0\n```")["traceback"])
        for source in ("Here it is:\n```python\n1\n```", "```python\n1\n```\n```python\n2\n```", "```bash\nls\n```"):
            error = self.fail(source)
            self.assertEqual(error["name"], "SyntaxError")
        self.assertIn("is Markdown", self.fail("```python\n1\n```\n```python\n2\n```")["message"])

    def test_asyncio_is_not_loaded_without_await(self):
        self.assertFalse(self.value("import sys\n'asyncio' in sys.modules"))

    def test_no_input(self):
        for source in ("input()", "import sys\nsys.stdin.read()", "next(sys.stdin)", "sys.stdin.buffer.read()"):
            error = self.fail(source)
            self.assertEqual(error["name"], "EOFError")
            self.assertIn("pass values as variables, or call a host tool", error["message"])
        self.assertEqual(self.value("import os\nos.read(sys.stdin.fileno(), 9)"), b"")
        self.assertEqual(self.value("sys.stdin.isatty()"), False)

    def test_input_from_the_request(self):
        read, write = subprocess.os.pipe()
        subprocess.os.write(write, b"line\nrest")
        subprocess.os.close(write)
        with Worker(stdin=read) as worker:
            self.assertEqual(worker.value("input()"), "line")
            self.assertEqual(worker.value("import sys\nsys.stdin.read()"), "rest")
        subprocess.os.close(read)

    def test_variables(self):
        long = list(range(100_000))
        outcome = self.worker.set(a=1, b={"x": (1, b"y")}, c=long, d=b"z" * 70_000)
        self.assertEqual(outcome.status, "ok")
        self.assertEqual(self.value("a, b, sum(c), len(d)"), (1, {"x": (1, b"y")}, sum(long), 70_000))
        self.worker.send({"kind": "set", "id": self.worker.next_id(), "variables": [["e", {"type": "?"}]]})
        self.assertEqual(self.worker.outcome().error["name"], "ValueError")
        for _ in range(300):
            # All of their files are closed.
            self.worker.set(d=b"z" * 70_000)
        self.assertLess(self.value("import os\nlen(os.listdir('/proc/self/fd'))"), 20)

    def test_values_of_any_size(self):
        self.assertEqual(self.value("b'x' * 65536"), b"x" * 65536)
        self.assertEqual(self.value("b'x' * 65537"), b"x" * 65537)
        self.assertEqual(self.value("['a' * 40000] * 100"), ["a" * 40000] * 100)
        self.assertEqual(len(self.value("[b'x' * 1000] * 3000")), 3000)
        self.assertIs(type(self.value("object()")), values.Opaque)

    def test_a_value_over_a_limit_is_shown(self):
        self.value("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 17, 1 << 17))")
        self.assertEqual(len(self.value("bytes(1 << 17)")), 1 << 17)
        self.assertIn("File too large", self.value("bytes((1 << 17) + 1)").repr)
        self.worker.define(take=len)
        self.assertIn("File too large", self.fail("take(bytes((1 << 17) + 1))")["message"])
        self.assertEqual(self.value("take(b'123')"), 3)

    def test_the_last_cell_ends_like_a_script(self):
        source = (
            "import atexit, threading, time, sys\n"
            "atexit.register(print, 'exit')\n"
            "def late():\n    time.sleep(0.2)\n    print('thread')\n"
            "threading.Thread(target=late).start()\nprint(repr(sys.stdin.read()))\n[7]"
        )
        outcome = self.worker.cell(source, then="end")
        self.assertEqual(outcome.value, [7])
        self.assertEqual(self.worker.output()[0], "''\nthread\nexit\n")
        with self.assertRaises(Ended):
            self.worker.receive()
        self.assertEqual(self.worker.close(), 0)

    def test_failed_endings(self):
        for source, status, code in (("1/0", "exception", 1), ("raise SystemExit(3)", "exit", 3)):
            with Worker() as worker:
                self.assertEqual(worker.cell(source, then="end").status, status)
                self.assertEqual(worker.close(), code)

    def test_a_worker_ends_with_its_supervisor(self):
        self.value("import atexit\natexit.register(print, 'never')")
        self.assertEqual(self.worker.close(), 0)

    def test_a_child_that_reaches_the_end_of_the_cell(self):
        value = self.value(
            "import os\npid = os.fork()\nif pid:\n    _, status = os.waitpid(pid, 0)\nelse:\n    1/0\n"
            "os.WEXITSTATUS(status)"
        )
        self.assertEqual(value, 1)
        self.assertIn("ZeroDivisionError", self.worker.output()[1])
        self.assertEqual(self.value("2"), 2)

    def test_thousands_of_cells(self):
        for number in range(2000):
            self.assertEqual(self.value(f"{number}"), number)
        self.assertIn("    1/0", self.fail("1/0")["traceback"])


class Hostile(unittest.TestCase):
    def test_replaced_builtins_do_not_affect_the_worker(self):
        with Worker() as worker:
            worker.value(
                "import builtins, json, os, sys, traceback, linecache, io\n"
                "kept = dict(vars(builtins))\n"
                "for name in ('len', 'print', 'isinstance', 'type', 'repr', 'getattr', 'dict', 'list',\n"
                "             'Exception', 'BaseException', 'ValueError', 'map', 'compile', 'exec', 'eval'):\n"
                "    setattr(builtins, name, None)\n"
                "builtins.__import__ = None\n"
                "for module in (json, os, traceback, linecache):\n"
                "    for name in [*vars(module)]:\n"
                "        if not name.startswith('__'): setattr(module, name, None)\n"
                "sys.modules.clear()\n"
                "sys.stdout = sys.stderr = None"
            )
            self.assertEqual(worker.value("[1, {2: b'3'}]"), [1, {2: b"3"}])
            self.assertEqual(worker.cell("1/0").error["name"], "ZeroDivisionError")
            self.assertIn("name 'nothing'", worker.cell("nothing").error["message"])
            worker.define(add=lambda a, b: a + b)
            self.assertEqual(worker.value("add(1, 2)"), 3)

    def test_broken_streams(self):
        with Worker() as worker:
            worker.value("import sys\nclass S:\n    closed = property(lambda _: 1/0)\nsys.stdout = S()")
            self.assertEqual(worker.value("2"), 2)
            worker.value("sys.stdout = sys.__stdout__\nimport os\nos.close(1)")
            self.assertEqual(worker.cell("print('lost')").error["name"], "OSError")
            self.assertEqual(worker.value("3"), 3)

    def test_exceptions_that_lie(self):
        with Worker() as worker:
            error = worker.cell("class E(Exception):\n    def __str__(self): raise KeyError\nraise E").error
            self.assertEqual(error["message"], "<KeyError while reading the message>")
            worker.cell("e = ValueError('x')\ne.__cause__ = e\nraise e")
            worker.cell("class F(Exception):\n    def __getattribute__(self, name): raise KeyError(name)\nraise F")
            worker.cell("class G(BaseException): pass\nraise G('\\ud800' * 100000)")
            self.assertEqual(worker.value("1"), 1)

    def test_a_closed_or_broken_link_ends_the_guest_only(self):
        for source in (f"import os\nos.close({DATA})", f"import os\nos.dup2(0, {DATA})"):
            with Worker() as worker:
                worker.begin(source)
                with self.assertRaises((Ended, ConnectionError)):
                    worker.outcome()
                worker.close()

    def test_deep_recursion_and_low_limits(self):
        with Worker() as worker:
            self.assertEqual(worker.cell("def f(): f()\nf()").error["name"], "RecursionError")
            worker.cell("x = []\nfor _ in range(100000): x = [x]\nx")
            worker.cell("import sys\nsys.setrecursionlimit(10_000)\ndef f(n): return f(n - 1) if n else 1 / 0")
            shown = worker.cell("f(3000)").error["traceback"]
            self.assertLess(int(re.search(r"repeated (\d+) more times", shown)[1]), 1000)
            worker.cell("sys.setrecursionlimit(60)")
            self.assertEqual(worker.value("[[1]]"), [[1]])

    def test_traces_that_raise(self):
        with Worker() as worker:
            worker.cell("import sys\ndef trace(*_): raise KeyError\nsys.settrace(trace)")
            self.assertEqual(worker.value("1"), 1)
            worker.cell("sys.setprofile(trace)")
            self.assertEqual(worker.value("2"), 2)


class OneRun(unittest.TestCase):
    def test_one_cell_and_its_value_with_buffers(self):
        for warm in (False, True):
            with Worker(serves="one-run", warm=warm) as worker:
                outcome = worker.cell("import sys\nprint('a')\n[b'x', {'argv': sys.argv}]", argv=["y"])
                self.assertEqual(outcome.value, [b"x", {"argv": ["<cell 1>", "y"]}])
                self.assertEqual(outcome.header["blob"], {"lengths": [1]})
                self.assertEqual(worker.close(), 0)

    def test_a_file_has_the_encoding_of_its_coding_line(self):
        cases = [
            ("# coding: latin-1\n'\u00e9'", "latin-1", "\u00e9"),
            ("#!/usr/bin/python3\n# vim: set fileencoding=cp1252 :\n'\u20ac'", "cp1252", "\u20ac"),
            ("# coding: shift_jis\r\n'\u8868'", "shift_jis", "\u8868"),
            ("'\u00e9'  # coding: latin-1", "utf-8", "\u00e9"),
            ("# coding: utf-8\n'\u00e9'", "utf-8-sig", "\u00e9"),
        ]
        for text, encoding, value in cases:
            with Worker(serves="one-run") as worker:
                self.assertEqual(worker.cell(text.encode(encoding)).value, value)
        for source in (b"# coding: klingon\n1", b"# coding: rot13\n1", b"# coding: utf-8\n'\xe9'"):
            with Worker(serves="one-run") as worker:
                self.assertIn("SyntaxError", worker.cell(source).error["traceback"])

    def test_a_plain_value_needs_no_buffer_and_a_large_one_is_shown(self):
        for source, value in ("3", 3), ("'x' * 100", "x" * 100), ("None", None), ("'é'", "é"):
            with Worker(serves="one-run") as worker:
                outcome = worker.cell(source)
                self.assertEqual(outcome.value, value)
                self.assertNotIn("blob", outcome.header)
        with Worker(serves="one-run") as worker:
            self.assertEqual(len(worker.cell("bytearray(4 << 20)").value), 4 << 20)
        shown = "class L(list):\n    def __repr__(self): print('shown')\n"
        for source in ("[b'x' * (4 << 20) + b'x', 1]", "['x' * (3 << 20)] * 2", "[0] * 524289", "[[]] * 600_000", shown + "[L(), b'x' * 4194305]"):
            with Worker(serves="one-run") as worker:
                outcome = worker.cell(source)
                self.assertEqual(outcome.value.repr, "<list, too large to transfer>")
                self.assertNotIn("blob", outcome.header)
                self.assertEqual(worker.output()[0], "")

    def test_a_guest_that_breaks_imports_gets_its_value_shown(self):
        for name in ("__import__", "len", "ValueError"):
            for warm, shown in (False, True), (True, False):
                with Worker(serves="one-run", warm=warm) as worker:
                    outcome = worker.cell("import builtins\nbuiltins.%s = None\n[b'x']" % name)
                    self.assertEqual(outcome.status, "ok", outcome)
                    if type(outcome.value) is values.Opaque:
                        self.assertTrue(shown, name)
                        self.assertEqual(outcome.value.repr, "[b'x']")
                    else:
                        self.assertEqual(outcome.value, [b"x"])

    def test_a_failed_run_of_the_exit_handlers_drops_value_and_buffers(self):
        with Worker(serves="one-run") as worker:
            outcome = worker.cell("import atexit\natexit._run_exitfuncs = None\nb'x'")
            self.assertEqual((outcome.status, outcome.error["name"]), ("exception", "TypeError"))
            self.assertNotIn("value", outcome.header)
            self.assertNotIn("blob", outcome.header)

    def test_await(self):
        source = "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 7\nt = asyncio.create_task(f())\nawait t"
        with Worker(serves="one-run") as worker:
            self.assertEqual(worker.cell(source).value, 7)
        with Worker(serves="one-run") as worker:
            error = worker.cell("import asyncio\nasync def f():\n    1 / 0\nawait f()").error
            self.assertEqual(error["traceback"].count("File "), 2, error)
        with Worker(serves="one-run") as worker:
            source = "import asyncio\nasync def f():\n    return 8\nasyncio.run(f())"
            self.assertEqual(worker.cell(source).value, 8)

    def test_nothing_of_a_session_is_loaded(self):
        source = "import sys\nsorted(m for m in ('_socket', 'select', 'mmap', 're', 'typing', 'asyncio', 'sandfork_guest', 'sandfork_host') if m in sys.modules)"
        with Worker(serves="one-run") as worker:
            self.assertEqual(worker.cell(source).value, [])
        with Worker(serves="one-run") as worker:
            self.assertEqual(worker.cell("display(1)").error["name"], "NameError")


if __name__ == "__main__":
    unittest.main()

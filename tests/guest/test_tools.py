"""Tests of host tools: called from the cell, threads and child processes; tools that end the cell."""

import time
import unittest

from harness import Worker, values


class Tools(unittest.TestCase):
    def setUp(self):
        self.worker = Worker()
        self.addCleanup(self.worker.close)
        self.calls = []

    def define(self, *ending, **tools):
        self.assertEqual(self.worker.define(*ending, **tools).status, "ok")

    def value(self, source, **options):
        return self.worker.value(source, **options)

    def fail(self, source):
        outcome = self.worker.cell(source)
        self.assertEqual(outcome.status, "exception", outcome)
        return outcome.error

    def test_arguments_and_values_of_all_kinds(self):
        self.define(echo=lambda *args, **kwargs: (args, kwargs))
        found = self.value("echo(1, b'x', [None], a={1: (2,)}, **{'a b': 'é'})")
        self.assertEqual(found, ((1, b"x", [None]), {"a": {1: (2,)}, "a b": "é"}))
        self.assertEqual(len(self.value("echo(b'x' * 200_000)")[0][0]), 200_000)
        self.assertIs(type(self.value("echo(object())")[0][0]), values.Opaque)
        self.assertIsNone(self.value("x = echo()"))
        self.assertEqual(self.fail("echo(*range(2000))")["name"], "TypeError")
        self.assertEqual(self.fail("echo(**{'\\ud800': 1})")["name"], "TypeError")
        self.define(nothing=lambda: None)
        self.assertIsNone(self.value("nothing()"))

    def test_where_tools_are_found(self):
        self.define(add=lambda a, b: a + b)
        self.assertEqual(self.value("from sandfork_host import add as plus\nplus(1, b=2)"), 3)
        self.assertEqual(self.value("import sandfork_host\nsandfork_host.add(3, 4)"), 7)
        self.value("add = 5")
        self.assertEqual(self.value("add, sandfork_host.add(1, 1)"), (5, 2))
        self.define(add=lambda a, b: a * b)
        self.assertEqual(self.value("add(3, 4)"), 12)
        self.assertEqual(self.value("def f(add=add): return add(2, 5)\nf()"), 10)

    def test_signatures_and_docstrings(self):
        def tool():
            """Adds."""

        self.define(add=tool)
        found = self.value("add.__name__, add.__doc__, add.__module__, repr(add)[:14]")
        self.assertEqual(found, ("add", "add(...)\n\nAdds.", "sandfork_host", "<function add "))

    def test_exceptions(self):
        errors = {
            "value": ValueError("bad value"),
            "key": KeyError("it's"),
            "empty": LookupError(),
            "stop": StopIteration("x"),
            "denied": PermissionError("no"),
            "unicode": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
            "own": type("Own", (Exception,), {})("of the host"),
            "named": type("SystemExit", (Exception,), {})("not an end"),
            "json": type("JSONDecodeError", (ValueError,), {})("no JSON"),
            "file": type("NoSuchPage", (FileNotFoundError,), {})(2, "no page"),
        }

        def fail(name):
            raise errors[name]

        self.define(fail=fail)
        for name, known in (("value", "ValueError"), ("key", "KeyError"), ("empty", "LookupError")):
            error = self.fail(f"fail({name!r})")
            self.assertEqual((error["name"], error["message"]), (known, str(errors[name])))
        self.assertEqual(self.fail("fail('denied')")["name"], "PermissionError")
        for name in ("unicode", "own", "named"):
            error = self.fail(f"fail({name!r})")
            text = f"{type(errors[name]).__name__}: {errors[name]}"
            self.assertEqual((error["name"], error["message"]), ("ToolError", text))
        caught = "from sandfork_host import ToolError\ntry:\n    fail('own')\nexcept ToolError as e:\n    x = e.args\nx"
        self.assertEqual(self.value(caught), ("Own: of the host",))
        bases = {"unicode": "ValueError", "own": "RuntimeError", "json": "ValueError", "file": "OSError"}
        for name, base in bases.items():
            source = f"try:\n    fail({name!r})\nexcept {base} as e:\n    x = str(e), getattr(e, 'errno', None)\nx"
            text = f"{type(errors[name]).__name__}: {errors[name]}"
            self.assertEqual(self.value(source), (text, None))
        traceback = self.fail("def f():\n    fail('value')\nf()")["traceback"]
        self.assertEqual(traceback.count("File "), 2)
        self.assertNotIn("sandfork", traceback)

    def test_threads(self):
        self.define(echo=lambda x: x)
        source = (
            "import threading\nfound = {}\n"
            "def work(n):\n    for i in range(20): found[n, i] = echo((n, i))\n"
            "threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]\n"
            "[t.start() for t in threads]\n"
            "for i in range(50): found['main', i] = echo(('main', i))\n"
            "[t.join() for t in threads]\n"
            "len(found), all(key == value for key, value in found.items())"
        )
        self.assertEqual(self.value(source), (370, True))

    def test_answers_in_another_order(self):
        source = (
            "import threading\nfound = {}\n"
            "def work(n): found[n] = wait(n, b'x' * (n * 50_000))\n"
            "threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]\n"
            "[t.start() for t in threads]; [t.join() for t in threads]\nfound"
        )
        self.define(wait=None)
        self.worker.begin(source)
        calls = [self.worker.receive() for _ in range(4)]
        for header, decoder in reversed(calls):
            args = [decoder.decode(tree) for tree in header["args"]]
            tree, buffers = values.encode((args[0], len(args[1]), b"y" * (args[0] * 50_000)))
            answer = {"kind": "return", "call": header["call"], "value": tree}
            self.worker.send(answer, buffers=buffers)
        found = self.worker.outcome().value
        self.assertEqual(found, {n: (n, n * 50_000, b"y" * (n * 50_000)) for n in range(4)})

    def test_a_thread_that_outlives_its_cell(self):
        self.define(wait=None)
        self.worker.begin(
            "import threading, time\nfound = []\n"
            "def late():\n"
            "    for _ in range(2):\n"
            "        try: found.append(wait())\n"
            "        except RuntimeError as e: found.append(str(e))\n"
            "thread = threading.Thread(target=late)\nthread.start()"
        )
        seen = [self.worker.receive()[0] for _ in range(2)]
        self.assertEqual({header["kind"] for header in seen}, {"call", "result"})
        call = next(header for header in seen if header["kind"] == "call")
        # The thread reads now, and hands over the main thread's messages.
        self.assertEqual(self.value("1 + 1"), 2)
        refused = {"name": "RuntimeError", "message": "the cell that made this call has ended"}
        self.worker.send({"kind": "return", "call": call["call"], "error": refused})
        again, _ = self.worker.receive()
        self.assertEqual((again["kind"], again["id"]), ("call", 3))
        self.worker.send({"kind": "return", "call": again["call"], "value": 5})
        self.assertEqual(self.value("thread.join()\nfound"), [refused["message"], 5])

    def test_a_forked_child_has_no_tools(self):
        self.define(add=lambda a, b: a + b)
        status = self.value(
            "import os\npid = os.fork()\n"
            "if not pid:\n"
            "    try: add(1, 2)\n"
            "    except RuntimeError as e: os._exit('forked' in str(e))\n"
            "    os._exit(9)\n"
            "os.WEXITSTATUS(os.waitpid(pid, 0)[1])"
        )
        self.assertEqual(status, 1)
        self.assertEqual(self.value("add(1, 2)"), 3)

    def test_a_call_takes_no_longer_than_a_few_frames(self):
        self.define(echo=lambda x: x)
        began = time.monotonic()
        self.value("for i in range(1000): echo(i)")
        self.assertLess(time.monotonic() - began, 25)


class Ending(unittest.TestCase):
    """Tools that end a cell, such as smolagents' `final_answer`."""

    def setUp(self):
        self.worker = Worker()
        self.addCleanup(self.worker.close)
        self.asked = []
        self.worker.define("final", final=lambda *args: self.asked.append(args) or list(args), add=int)

    def final(self, source):
        began = time.monotonic()
        outcome = self.worker.cell(source)
        self.assertLess(time.monotonic() - began, 25)
        self.assertEqual((outcome.status, outcome.final), ("ok", True), outcome)
        return outcome.value

    def test_the_cell_ends_with_the_answer(self):
        self.assertEqual(self.final("final(1, 'a')\nraise ValueError"), [1, "a"])
        self.assertEqual(self.final("def f():\n    return [final(n) for n in range(3)]\nf()\n1/0"), [0])
        self.assertFalse(self.worker.cell("1").final)

    def test_it_cannot_be_caught(self):
        self.assertEqual(self.final("try:\n    final(1)\nexcept Exception:\n    1/0\n1/0"), [1])
        self.assertEqual(self.final("try:\n    final(2)\nexcept:\n    pass\nraise KeyError"), [2])
        self.assertEqual(self.final("try:\n    final(3)\nfinally:\n    1/0"), [3])
        self.assertEqual(self.final("try:\n    final(4)\nexcept BaseException as e:\n    pass\n'other'"), [4])
        self.assertEqual(self.asked, [(1,), (2,), (3,), (4,)])

    def test_the_first_answer_stands(self):
        self.assertEqual(self.final("for n in range(3):\n    try: final(n)\n    except: pass"), [0])
        self.assertEqual(self.asked, [(0,)])

    def test_in_a_thread(self):
        for wait in ("t.join()", "time.sleep(30)", "while True: pass", "lock.acquire()", "input_lock.get()"):
            with self.subTest(wait=wait):
                source = (
                    "import threading, time, queue\nlock = threading.Lock()\nlock.acquire()\n"
                    "input_lock = queue.Queue()\n"
                    "t = threading.Thread(target=final, args=(7,))\nt.start()\n"
                )
                self.assertEqual(self.final(source + wait), [7])
        self.assertEqual(self.worker.output(), ("", ""))

    def test_in_a_pool(self):
        source = (
            "from concurrent.futures import ThreadPoolExecutor\n"
            "with ThreadPoolExecutor() as pool:\n    list(pool.map(final, [1]))"
        )
        self.assertEqual(self.final(source), [1])

    def test_in_a_coroutine(self):
        source = "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    final(1)\nawait asyncio.gather(f(), f())"
        self.assertEqual(self.final(source), [1])
        self.assertEqual(self.worker.value("await asyncio.sleep(0, 2)"), 2)

    def test_an_answer_that_is_an_error_ends_nothing(self):
        def fail():
            raise ValueError("no")

        self.worker.define("final", final=fail)
        found = self.worker.cell("try:\n    final()\nexcept ValueError as e:\n    x = str(e)\nx")
        self.assertEqual((found.value, found.final), ("no", False))

    def test_large_answers(self):
        self.assertEqual(self.final("final(b'x' * 100_000)"), [b"x" * 100_000])


if __name__ == "__main__":
    unittest.main()

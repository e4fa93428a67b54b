"""Tests that SIGINT interrupts guest code at once, and never between cells or within a frame."""

import random
import signal
import threading
import time
import unittest

from harness import Worker


class Interrupts(unittest.TestCase):
    def setUp(self):
        self.worker = Worker()
        self.addCleanup(self.worker.close)

    def interrupted(self, source, **options):
        """Returns the outcome of a cell that is interrupted after it has printed `go`."""
        self.worker.begin(source, **options)
        self.worker.wait_for_output("go")
        time.sleep(0.05)
        began = time.monotonic()
        self.worker.interrupt()
        outcome = self.worker.outcome()
        self.assertLess(time.monotonic() - began, 25)
        return outcome

    def test_every_kind_of_wait(self):
        self.worker.value("import time, threading, queue, subprocess, asyncio, os")
        for source in (
            *("while True: pass", "time.sleep(60)", "threading.Event().wait()", "queue.Queue().get()"),
            *("threading.Lock().__enter__(); l = threading.Lock(); l.acquire(); l.acquire()",),
            *("subprocess.run(['sleep', '60'])", "await asyncio.sleep(60)", "os.read(os.pipe()[0], 1)"),
            "class R:\n    def __repr__(self):\n        while True: pass\nR()",
            "class R:\n    def __repr__(self):\n        while True: pass\n[1, {2: R()}]",
        ):
            with self.subTest(source=source):
                outcome = self.interrupted("print('go')\n" + source)
                self.assertEqual(outcome.error.get("name"), "KeyboardInterrupt", outcome)
                self.assertNotIn("sandfork", outcome.error["traceback"])
                self.assertEqual(self.worker.value("1"), 1)

    def test_a_task_that_blocks_between_cells(self):
        self.worker.value("import asyncio, time")
        self.worker.value("async def hog():\n    await asyncio.sleep(0)\n    print('go')\n    while True: pass")
        self.worker.value("task = asyncio.create_task(hog())")
        self.worker.wait_for_output("go")
        self.worker.begin("1")
        time.sleep(0.05)
        self.worker.interrupt()
        self.assertEqual(self.worker.outcome().error["name"], "KeyboardInterrupt")
        self.assertEqual(self.worker.value("task.done()"), True)

    def test_a_message_that_loops(self):
        outcome = self.interrupted(
            "class S(Exception):\n    def __str__(self):\n        print('go')\n        while True: pass\nraise S"
        )
        self.assertEqual(outcome.status, "exception")
        self.assertEqual(self.worker.value("1"), 1)

    def test_the_guest_may_catch_it(self):
        source = "try:\n    print('go')\n    while True: pass\nexcept KeyboardInterrupt:\n    x = 'caught'\nx"
        self.assertEqual(self.interrupted(source).value, "caught")
        again = "for _ in range(2):\n    try:\n        print('go')\n        while True: pass\n    except KeyboardInterrupt: pass\n5"
        self.worker.begin(again)
        for _ in range(2):
            self.worker.wait_for_output("go")
            self.worker.interrupt()
        self.assertEqual(self.worker.outcome().value, 5)

    def test_a_call_of_a_host_tool(self):
        self.worker.define(wait=None, echo=lambda x: x)
        self.worker.begin("wait(1)")
        call, _ = self.worker.receive()
        self.worker.interrupt()
        self.assertEqual(self.worker.outcome().error["name"], "KeyboardInterrupt")
        # Its reply is late and must be dropped.
        self.worker.send({"kind": "return", "call": call["call"], "value": 3})
        buffers = [b"x" * 100_000]
        late = {"kind": "return", "call": call["call"], "value": {"type": "bytes", "buffer": 0}}
        self.worker.send(late, buffers=buffers)
        self.assertEqual(self.worker.value("echo(4)"), 4)
        self.assertEqual(len(self.worker.value("echo(b'y' * 100_000)")), 100_000)

    def test_a_call_while_a_thread_reads(self):
        self.worker.define(wait=None)
        self.worker.begin(
            "import threading, time\n"
            "t = threading.Thread(target=wait, args=('thread',))\nt.start()\ntime.sleep(0.2)\nwait('main')"
        )
        calls = {}
        for _ in range(2):
            header, _ = self.worker.receive()
            calls[header["args"][0]] = header["call"]
        self.worker.interrupt()
        self.assertEqual(self.worker.outcome().error["name"], "KeyboardInterrupt")
        self.assertEqual(self.worker.value("2"), 2)
        self.worker.send({"kind": "return", "call": calls["thread"]})
        self.assertEqual(self.worker.value("t.join()\n3"), 3)

    def test_no_interrupt_between_cells(self):
        self.worker.value("0")
        for _ in range(20):
            self.worker.interrupt()
        time.sleep(0.1)
        # CPython handles a signal that arrives just before a wait only after the wait. The test
        # interrupts at that moment, before a cell.
        self.assertEqual(self.worker.set(a=1).status, "ok")
        self.assertEqual(self.worker.value("1"), 1)

    def test_at_the_very_start_of_a_cell(self):
        """The signal arrives before, while or after the guest reads the cell."""
        for fresh in (True, False):
            for delay in range(20):
                worker = Worker() if fresh else self.worker
                worker.begin("while True: pass")
                time.sleep(delay * 0.0001)
                worker.interrupt()
                outcome = worker.outcome()
                self.assertEqual(outcome.error.get("name"), "KeyboardInterrupt")
                self.assertEqual(worker.value("1"), 1)
                if fresh:
                    worker.close()

    def test_a_handler_of_the_guests_is_replaced_at_the_next_cell(self):
        self.worker.value("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)")
        outcome = self.interrupted("print('go')\nwhile True: pass")
        self.assertEqual(outcome.error["name"], "KeyboardInterrupt")

    def test_signal_storms_lose_no_frame(self):
        """Signals at every moment: each cell gets its result, and each frame stays complete."""
        self.worker.define(echo=lambda x: x)
        chance = random.Random(1)
        stop = threading.Event()

        def storm():
            while not stop.is_set():
                self.worker.process.send_signal(signal.SIGINT)
                time.sleep(chance.random() * 0.002)

        thread = threading.Thread(target=storm)
        thread.start()
        try:
            kinds = set()
            for number in range(600):
                source = (
                    "1",
                    "x = [echo(i) for i in range(5)]\nx",
                    "display(object())\nb'y' * 70_000",
                    "try:\n    for i in range(9): echo(b'z' * 70_000)\nexcept KeyboardInterrupt: pass\n[2]",
                )[number % 4]
                outcome = self.worker.cell(source)
                kinds.add(outcome.error.get("name"))
            self.assertLessEqual(kinds, {None, "KeyboardInterrupt"})
        finally:
            stop.set()
            thread.join()
        # The last signal may still be pending, and would interrupt the next cell.
        time.sleep(0.1)
        self.assertEqual(self.worker.set(a=1).status, "ok")
        self.assertEqual(self.worker.value("echo(7)"), 7)
        self.assertLess(len(self.worker.value("import os\nos.listdir('/proc/self/fd')")), 15)

    def test_a_run_of_one_cell_keeps_pythons_own_handler(self):
        with Worker(serves="one-run") as worker:
            source = "import signal\nsignal.getsignal(2) is signal.default_int_handler"
            self.assertIs(worker.value(source), True)


if __name__ == "__main__":
    unittest.main()

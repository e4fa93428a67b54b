"""Runs a session in a worker: cell after cell in one `__main__`, until the supervisor disconnects."""

import builtins
import sys
from _signal import SIG_SETMASK, pthread_sigmask
from os import _exit, getpid

from .. import values, wire
from ..cell import compile_text, cut
from ..process import reseed_copy
from ..program import link_project
from ..runner import REHEARSED, Runner, describe
from .display import PLAIN, DisplayLimit, Displays
from .interrupts import Interrupts
from .link import Link
from .plots import Plots
from .shared import NotPassed, pack, unpack
from .source import ends_quietly, read
from .statement import record_last, take_value
from .stdin import NoInput
from .tools import Tools


# The request id with which a paused worker resumes. No other worker has its memory, so it keeps its random
# numbers.
RESUMED = "1"


def warm_up():
    """Imports and allocates what a session's first cell would otherwise import and allocate in every
    worker."""
    for _ in range(10):
        read(REHEARSED, "<warm>", {}, None)
        record_last(read(b"x = 1", "<warm>", {}, None)[0])
        tree, buffers = values.encode([{"x": 1}, (1.5, "y"), b"z", object()])
        values.decode(tree, values.split(memoryview(pack(buffers)[1]), [1]))
        wire.loads(wire.dumps(tree))


class Session(Runner):
    """A runner whose cells may be interrupted, display objects and call host tools."""

    rehearsed = (*Runner.rehearsed, ("statement", b"x = 1"))

    def __init__(self, native):
        super().__init__(getpid())
        self.native = native
        self.interrupts = Interrupts()
        self.guarded = self.interrupts.guarded
        self.link = Link(self.interrupts)
        self.tools = Tools(self.link, self.interrupts)
        self.displays = Displays(self.link, self.interrupts, self.tools)
        self.plots = Plots(self.displays, self.get_ipython)
        # The kind of value of the running cell, and its magics if it has any.
        self.last = "expression"
        self.magics = None
        # Whether the running cell ends with a semicolon.
        self.is_quiet = False
        # Whether the last encoded value has the same `repr()` at the caller, and the name of its class.
        self.is_exact = True
        self.class_name = ""
        # A builtin, so that modules that the guest imports can use it too.
        builtins.display = self.tools.module.display = self.displays.display
        self.stdin = NoInput()
        self.plots.prepare()

    def rehearse(self):
        super().rehearse()
        # A rehearsal's value is not the guest's.
        vars(builtins).pop("_", None)

    def serve(self, stdin, mask, project=None):
        """Serves requests and never returns. Signals stay blocked until it sets the mask."""
        try:
            if stdin == "input":
                self.stdin = sys.stdin
            self.interrupts.take_signal()
            pthread_sigmask(SIG_SETMASK, mask)
            request = self.link.request()
            # Only now, so that the caller's own files come first.
            if project is not None:
                link_project(project)
            while True:
                self.answer(*request)
                request = self.next_request()
        except BaseException:
            # The guest broke the link, so nothing can be reported.
            _exit(1)

    def next_request(self):
        """Waits for a request. Tasks of an open event loop keep running meanwhile."""
        if self.loop.is_open():
            self.interrupts.between(self.loop.run_until_request, self.link)
        return self.link.request()

    def answer(self, request, payload, passed):
        kind = request["kind"]
        if kind == "cell":
            self.run_cell(request, payload)
            return
        result = {"kind": "result", "id": request["id"], "status": "ok"}
        try:
            if kind == "snapshot":
                result["id"] = self.suspend(request["id"])
            elif kind == "tools":
                self.tools.define(request["tools"], vars(self.main))
            else:
                self.set_variables(request, unpack(request.get("blob"), payload, passed))
        except Exception as error:
            describe(result, error)
        self.send(result, ())

    def suspend(self, number):
        """Suspends while the supervisor copies this worker. Returns the id of the request to reply to, which
        in a copy is the id of the request that created the copy."""
        self.loop.close_descriptors()
        try:
            copied = self.native.stand(str(number))
        finally:
            self.loop.open_descriptors()
        if not copied:
            return number
        if copied != RESUMED:
            reseed_copy()
        return int(copied)

    def set_variables(self, request, buffers):
        decoder = values.Decoder(buffers)
        for name, tree in request["variables"]:
            vars(self.main)[name] = decoder.decode(tree)

    def prepare(self, request, source):
        self.interrupts.begin(request["id"])
        self.last = request.get("last", "expression")
        self.is_quiet = False
        super().prepare(request, source)
        sys.modules["__main__"] = self.main
        # A whole program reads an empty file, as outside a sandbox.
        sys.stdin = sys.__stdin__ if request.get("then") == "end" else self.stdin

    def evaluate(self, request, source, result):
        buffers, error = self.guarded(self.attempt, request, source, result)
        self.interrupts.pending = False
        answered = self.interrupts.answered()
        if answered:
            error = None
            buffers = self.add_value(result, *answered)
            result["final"] = True
        if error is not None:
            self.guarded(self.describe, request, result, error)
        is_interrupted = issubclass(type(error), KeyboardInterrupt)
        # The exception's frames refer to this frame. The cycle would keep the cell's objects alive until a
        # collection, and memory may run out before that.
        ran_out = issubclass(type(error), MemoryError)
        error = None
        if ran_out:
            # The C library keeps free memory below an object that is still in use, which would reduce the
            # next cell's memory.
            self.native.trim("")
        if getpid() == self.worker:
            _, failed = self.guarded(self.plots.close_figures if is_interrupted else self.plots.show_figures)
            if type(failed) is DisplayLimit and result["status"] == "ok":
                self.guarded(self.describe, request, result, failed)
            failed = None
        return buffers

    def attempt(self, request, source, result):
        """Runs a cell and adds its value to the result. Returns the value's buffers."""
        self.interrupts.check()
        recorded = None
        try:
            value = self.execute(request, source)
        finally:
            if self.last == "statement":
                recorded = take_value(vars(self.main))
            if self.magics is not None:
                self.magics.finish()
        if self.is_quiet:
            result["quiet"] = True
        if value is None or self.last == "statement":
            return self.add_value(result, recorded if value is None else value)
        is_shown = self.last == "notebook" or (self.last == "expression" and type(value) not in PLAIN)
        # A quiet figure is still shown, together with the open figures.
        if is_shown and not self.is_quiet:
            self.displays.show_value(value)
            self.plots.close(value)
        # Like Python's own prompt.
        builtins._ = value
        if self.last == "text":
            value = values.cut(repr(value), values.MAX_REPR)
        self.is_exact = True
        buffers = self.add_value(result, value)
        if self.last == "expression" and not is_shown and not self.is_quiet and not self.is_exact:
            # The caller cannot recover the names of an enum's members from the value.
            self.displays.show({"text/plain": values.safe_repr(value)}, main=True)
        return buffers

    def encode(self, value):
        encoder = values.Encoder()
        tree = encoder.encode(value)
        self.class_name = values.class_name(value)
        # Large values are not shown here: their text takes as much memory again.
        self.is_exact = encoder.is_exact or sum(map(len, encoder.buffers)) > values.SHARED
        return tree, encoder.buffers

    def compile(self, source, filename, wanted):
        codes = compile_text(self.native, source, filename, wanted)
        if codes is None:
            return super().compile(source, filename, wanted)
        self.magics = None
        self.offer_shell(source)
        return codes

    def parse(self, source, filename):
        tree, self.magics = read(source, filename, vars(self.main), self.displays)
        self.is_quiet = ends_quietly(tree, source)
        self.offer_shell(source)
        if self.last == "statement":
            record_last(tree)
        return tree

    def offer_shell(self, source):
        if (b"get_ipython" if isinstance(source, bytes) else "get_ipython") in source:
            # Not a builtin: libraries that find one there expect all of IPython.
            vars(self.main).setdefault("get_ipython", self.get_ipython)

    def get_ipython(self):
        from .magics import InteractiveShell, Magics

        return InteractiveShell(Magics(self.displays), self.main.__dict__)

    def send(self, result, buffers):
        self.interrupts.take_signal()
        try:
            packed = pack(buffers)
            # After the send, an interrupt is meant for the next cell.
            self.interrupts.rest()
            self.link.send(result, packed)
        except NotPassed as error:
            text = "<not passed: %s>" % cut(error.strerror, values.MAX_NAME)
            result.pop("blob", None)
            result["value"] = {"type": "opaque", "name": self.class_name, "repr": text}
            self.interrupts.rest()
            self.link.send(result)

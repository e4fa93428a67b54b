"""A session in a worker: cell after cell in one `__main__`, until the supervisor hangs up."""

import builtins
import sys
from _signal import SIG_SETMASK, pthread_sigmask
from os import _exit, getpid

from .. import values, wire
from ..cell import cut, exit_code, set_argv
from ..ending import end_as_child, finish
from ..process import flush
from ..program import describe_main, link_project
from ..report import class_name, denied_by, describe_error
from .display import Displays
from .evaluate import Evaluator
from .interrupts import Interrupts
from .link import Link
from .plots import Plots
from .shared import NotPassed, pack, unpack
from .stdin import NoInput
from .tools import Tools


# Rehearsal cells, each with its kind of value.
REHEARSED = ("expression", b"x = 1\nx + 1"), ("statement", b"x = 1")


def warm_up():
    """Imports and allocates what a session's first cell would otherwise do in every worker."""
    namespace = {"__name__": "__main__", "__builtins__": builtins}
    for _ in range(10):
        for last, source in REHEARSED:
            Evaluator().run(source, "<warm>", namespace, last)
        encoder = values.Encoder()
        tree = encoder.encode([{"x": 1}, (1.5, "y"), b"z", object()])
        values.decode(tree, values.split(memoryview(pack(encoder.buffers)[1]), [1]))
        wire.loads(wire.dumps(tree))


class NoLink:
    """A link that discards what is sent."""

    def send(self, header, packed=(None, b"", None)):
        wire.encode(header, packed[1])


class Session:
    def __init__(self):
        self.interrupts = Interrupts()
        self.link = Link(self.interrupts)
        self.tools = Tools(self.link, self.interrupts)
        self.displays = Displays(self.link, self.interrupts, self.tools)
        self.plots = Plots(self.displays)
        self.evaluator = Evaluator(self.displays)
        self.worker = getpid()
        # A builtin, as in IPython, so that modules that the guest imports can use it too.
        builtins.get_ipython = self.get_ipython
        builtins.display = self.tools.module.display = self.displays.display
        self.stdin = NoInput()
        self.plots.prepare()
        self.begin_anew()

    def begin_anew(self):
        """Starts a new namespace for the next cells."""
        self.main = type(sys)("__main__")
        self.main.__builtins__ = builtins
        sys.modules["__main__"] = self.main

    def rehearse(self, filename):
        """Runs rehearsal cells, whose results are discarded and whose variables are not kept."""
        link, self.link = self.link, NoLink()
        for last, source in REHEARSED:
            request = {"kind": "cell", "id": 0, "filename": filename, "argv": [], "last": last}
            self.answer(wire.loads(wire.dumps(request)), source, None)
        self.link = link
        self.begin_anew()

    def serve(self, stdin, mask, project=None):
        """Serves requests and never returns. Signals are blocked until it sets the mask."""
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
        """Waits for a request. The tasks of the event loop go on meanwhile, if there is one."""
        if self.evaluator.loop.is_open():
            self.interrupts.between(self.evaluator.loop.go_on, self.link)
        return self.link.request()

    def answer(self, request, payload, passed):
        kind = request["kind"]
        result = {"kind": "result", "id": request["id"], "status": "ok"}
        if kind == "cell":
            self.run_cell(request, payload, result)
            return
        try:
            if kind == "tools":
                self.tools.define(request["tools"], vars(self.main))
            else:
                self.set_variables(request, unpack(request.get("blob"), payload, passed))
        except Exception as error:
            result.update(status="exception", error=describe_error(error))
        self.send(result, ())

    def set_variables(self, request, buffers):
        decoder = values.Decoder(buffers)
        for name, tree in request["variables"]:
            vars(self.main)[name] = decoder.decode(tree)

    def run_cell(self, request, source, result):
        self.prepare(request, source)
        guarded = self.interrupts.guarded
        encoder = values.Encoder()
        _, error = guarded(self.evaluate, request, source, encoder, result)
        self.interrupts.pending = False
        code = 0
        if self.interrupts.answered():
            error = None
            encoder = values.Encoder()
            result["value"] = encoder.encode(*self.interrupts.answered())
            result["final"] = True
        elif error is not None:
            encoder.buffers.clear()
            result.pop("value", None)
            code = guarded(self.describe, error, result)[0] or 0
        if getpid() != self.worker:
            end_as_child(result, code)
        interrupted = issubclass(type(error), KeyboardInterrupt)
        # The exception's frames refer to this frame. The cycle would keep the cell's objects until a
        # collection, and memory may run out before that.
        error = None
        if not interrupted:
            guarded(self.plots.show_figures)
        if request.get("then") == "end":
            guarded(self.evaluator.loop.close)
            code = guarded(finish, result, code)[0] or code
        else:
            guarded(flush)
        self.interrupts.take_signal()
        self.send(result, encoder.buffers if result["status"] == "ok" else ())
        if request.get("then") == "end":
            _exit(code)

    def prepare(self, request, source):
        filename = request["filename"]
        self.interrupts.begin(request["id"])
        set_argv(filename, request["argv"])
        describe_main(vars(self.main), filename, source, "text")
        # A whole program reads an empty file, as outside a sandbox.
        sys.stdin = sys.__stdin__ if request.get("then") == "end" else self.stdin
        sys.modules["__main__"] = self.main

    def evaluate(self, request, source, encoder, result):
        self.interrupts.check()
        last = request.get("last", "expression")
        value = self.evaluator.run(source, request["filename"], vars(self.main), last)
        if last == "expression" and value is not None:
            self.displays.show_value(value)
            self.plots.close(value)
        if last != "statement" and value is not None:
            # As Python's own prompt does.
            builtins._ = value
        if last == "text" and value is not None:
            value = values.cut(repr(value), values.MAX_REPR)
        result["value"] = encoder.encode(value)

    def describe(self, error, result):
        # First the parts that need no code of the guest, which may be interrupted again.
        unsaid = {"name": class_name(error), "message": "", "traceback": ""}
        result.update(status="exception", error=unsaid)
        if issubclass(type(error), SystemExit):
            code = exit_code(error)
            result.pop("error")
            result.update(status="exit", exit_code=code)
            return code
        result.update(error=describe_error(error), denied=denied_by(error))
        return 1

    def get_ipython(self):
        from .magics import InteractiveShell, Magics

        return InteractiveShell(Magics(self.displays), vars(self.main))

    def send(self, result, buffers):
        try:
            packed = pack(buffers)
            # After the send, an interrupt is for the next cell.
            self.interrupts.rest()
            self.link.send(result, packed)
        except NotPassed as error:
            text = "<not passed: %s>" % cut(str(error), values.MAX_NAME)
            result.pop("blob", None)
            result["value"] = {"type": "opaque", "name": "", "repr": text}
            self.interrupts.rest()
            self.link.send(result)

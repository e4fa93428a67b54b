"""Runs cells: the only cell of a run, or one cell after another in a session."""

import atexit
import builtins
import sys
from errno import ENOMEM
from os import _exit, getpid, sched_yield

from . import wire
from .awaiting import EventLoop, awaits, uses_loop
from .cell import (
    CLAIMS,
    MAX_TEXT,
    MODULE,
    class_name,
    clean,
    compile_both,
    cut,
    decoded,
    exit_code,
    forget_source,
    keep_source,
    note_source,
    parse,
    pop_last_expression,
    set_argv,
)
from .ending import (
    Unwritten,
    end_program,
    flush,
    flush_again,
    flush_last,
    guest_frames,
    has_own_stderr,
    note_last,
    note_unwritten,
    show_on,
)
from .program import describe_main, run_module

MAX_REPR = 16 * 1024
# Maximum bytes of the buffers of a run's value, which the supervisor keeps until the caller takes the result.
# The supervisor has the same bound.
MAX_BUFFERS = 4 << 20
# Imports nothing, because a policy may allow no module.
REHEARSED = b"def f(x):\n    return [x + 1]\n\nprint(end='')\nstr(f(1))"

# Bytes reserved for the report of a guest that has used up its memory. They are mapped but never touched, so
# they only cost address space, which a worker inherits from its zygote.
RESERVE = 4 << 20


class Reserve:
    """Memory that is available when the guest's is used up. It is a block held here if the policy limits
    mappings, or an allowance of the native half if it limits objects."""

    def __init__(self):
        self.held = None
        self.native = None
        self.take()

    def leave_to(self, native):
        """Makes the native half, which limits objects, provide the reserve."""
        self.held, self.native = None, native

    def take(self):
        """Reserves the memory, unless it is already reserved. If too little memory is left, the reserve stays
        released: the next cell may free memory."""
        if self.native is not None:
            self.native.end_report(None)
        elif self.held is None:
            try:
                both = bytes(RESERVE), bytes(RESERVE)
                self.held = both[0]
            except MemoryError:
                pass

    def release(self):
        """Releases the reserve. Returns whether the native half has refused memory since the last report."""
        self.held = None
        return self.native is not None and self.native.begin_report(None)


reserve = Reserve()
# The value of `sys.excepthook` unless a guest has set it.
ordinary_hook = sys.excepthook


def annotations():
    """Returns the initial annotations of `__main__`. Since Python 3.14 a module creates them on demand."""
    return {} if sys.version_info < (3, 14) else None


class NoLink:
    """A link that discards everything."""

    def send(self, header, packed=wire.NOTHING):
        wire.encode(header, packed[1])


class Runner:
    """The `__main__` of a run. A session inherits from it."""

    link = wire
    # The cells of a rehearsal, each with the kind of its value.
    rehearsed = (("expression", REHEARSED),)
    # Replaced by a session, because its cells may contain notebook syntax.
    parse = staticmethod(parse)

    def __init__(self, worker, main=None):
        self.worker = worker
        self.loop = EventLoop()
        if main is None:
            self.begin_anew()
        else:
            self.main = main

    def begin_anew(self):
        """Starts a new namespace for the next cells."""
        self.main = sys.modules["__main__"] = type(sys)("__main__")
        self.main.__builtins__ = builtins
        found = annotations()
        if found is not None:
            self.main.__annotations__ = found

    def rehearse(self):
        """Runs rehearsal cells, discards their results and drops their variables."""
        link, self.link = self.link, NoLink()
        for last, source in self.rehearsed:
            request = {"kind": "cell", "id": 0, "filename": "<warm>", "argv": [], "last": last}
            self.run_cell(wire.loads(wire.dumps(request)), source)
        self.link = link
        self.begin_anew()
        forget_source("<warm>")

    def run_cell(self, request, source):
        """Runs a cell and sends its result. Exits the process if the program ends with this cell."""
        self.prepare(request, source)
        result = ok_of(request)
        self.conclude(request, result, self.evaluate(request, source, result))

    def take_over(self, request, source, ended):
        """Continues after the native run path has executed the program. `ended` has the program's value and
        exception."""
        note_source(request["filename"], decoded(source, request.get("source", "file")))
        result = ok_of(request)
        error, value = ended.pop(), ended.pop()
        packed = ()
        if error is None:
            packed, error = self.guarded(self.add_value, result, value)
        if error is not None:
            self.guarded(self.describe, request, result, error)
        value = error = None
        self.conclude(request, result, packed)

    def conclude(self, request, result, packed):
        """Sends the result of a cell. Exits the process if the program ends with this cell."""
        if getpid() != self.worker:
            self.end_as_child(result)
        ends = request.get("then") == "end"
        if ends:
            self.guarded(self.finish, result)
        else:
            self.guarded(flush)
        # Guest code in these steps may also fork. Only the worker has a result to send.
        if getpid() != self.worker:
            _exit(status_of(result))
        if CLAIMS:
            result["denied"] = list(CLAIMS.values())
            CLAIMS.clear()
        # If a shutdown step failed and removed the value, its buffers are dropped too.
        self.send(result, packed if "value" in result else ())
        if ends:
            # The kernel often wakes the supervisor on this processor. Without the yield, the exit of the
            # interpreter would delay it for half a millisecond.
            sched_yield()
            _exit(status_of(result))
        reserve.take()

    def prepare(self, request, source):
        filename = request["filename"]
        set_argv(filename, request["argv"])
        describe_main(self.main.__dict__, filename, source, request.get("source", "file"))

    def evaluate(self, request, source, result):
        """Runs a cell and adds its value or exception to the result. Returns the value's buffers as `send`
        takes them."""
        try:
            return self.add_value(result, self.execute(request, source))
        except BaseException as raised:
            error = raised
        # Guest code may raise here too, outside the `except` block so that this exception is not its context.
        # The result has the name of the exception by then.
        self.guarded(self.describe, request, result, error)
        # The frames of the exception refer to this frame.
        error = None
        return ()

    def describe(self, request, result, error):
        """Changes a result to that of an exception. A program's own hook or stream displays it."""
        describe(result, error)
        if "error" not in result:
            return
        note_last(error)
        if request.get("then") != "end":
            return
        hook = getattr(sys, "excepthook", ordinary_hook)
        if hook is not ordinary_hook:
            show_by(hook, result, error)
        elif has_own_stderr():
            show_on(sys.stderr, result["error"]["traceback"])
            result["error"]["traceback"] = ""

    def execute(self, request, source):
        """Runs a cell. Returns the value of its trailing expression."""
        filename = request["filename"]
        if filename == MODULE:
            return run_module(source.decode())
        source = decoded(source, request.get("source", "file"))
        body, last = codes = self.compile(source, filename, request.get("last", "expression"))
        keep_source(filename, source)
        namespace = self.main.__dict__
        if awaits(codes) or (request.get("then") != "end" and uses_loop(codes)):
            return self.loop.run(codes, namespace)
        call = self.loop.call
        if body is not None:
            call(body, namespace)
        return None if last is None else call(last, namespace)

    def compile(self, source, filename, wanted):
        """Returns the code of everything but the trailing expression, and the code of that expression."""
        tree = self.parse(source, filename)
        last = None if wanted == "nothing" else pop_last_expression(tree)
        return compile_both(tree, last, filename)

    def add_value(self, result, value):
        """Adds a value to a result. Returns its buffers as `send` takes them."""
        if is_plain(value):
            result["value"] = value
            return ()
        try:
            result["value"], packed = self.encode(value)
        except Exception:
            # The guest has modified something that importing the encoder needs.
            name, shown = clean(type(value).__name__), cut(safe_repr(value), MAX_REPR)
            result["value"] = {"type": "opaque", "name": name, "repr": shown}
            return ()
        return packed

    def encode(self, value):
        """Returns the tree of a value, and its buffers."""
        from . import values

        encoder = values.Encoder(MAX_BUFFERS)
        tree, buffers = encoder.encode(value), encoder.buffers
        if not buffers:
            return tree, ()
        lengths = [len(buffer) for buffer in buffers]
        return tree, ({"lengths": lengths}, b"".join(values.pieces(buffers)), None)

    @staticmethod
    def guarded(act, *args):
        """Calls a function that runs guest code. Returns its result and `None`, or `None` and its
        exception."""
        try:
            return act(*args), None
        except BaseException as error:
            return None, error

    def finish(self, result):
        """Runs the shutdown steps of a program, and changes the result if one of them fails. The supervisor's
        limits end a thread or handler that takes too long."""
        acts = (join_threads, atexit._run_exitfuncs, flush_last, self.end_program, flush_again)
        # In a forked child, the loop shares its descriptors with the parent.
        if getpid() == self.worker:
            acts = (self.loop.close, *acts)
        for last_act in acts:
            try:
                last_act()
            except Unwritten as unwritten:
                note_unwritten(result, str(unwritten))
            except BaseException as error:
                if result["status"] == "ok":
                    describe(result, error)

    def end_program(self):
        self.main = None
        end_program()

    def end_as_child(self, result):
        """Exits a child that the guest forked and that reached the end of the cell."""
        try:
            if "error" in result:
                self.guarded(print_error, result)
            self.finish(result)
        finally:
            _exit(status_of(result))

    def send(self, result, packed):
        try:
            self.link.send(result, packed or wire.NOTHING)
        except OSError:
            # The guest closed or broke the socket. The exit status still shows how the run ended.
            pass


def ok_of(request):
    return {"kind": "result", "id": request["id"], "status": "ok"}


def describe(result, error):
    """Changes a result to that of an exception."""
    was_refused = reserve.release()
    result.pop("value", None)
    if issubclass(type(error), SystemExit):
        result.update(status="exit", exit_code=1)
        result["exit_code"] = exit_code(error)
        return
    # First the part that needs neither guest code, which may be interrupted, nor an import.
    unsaid = {"name": class_name(error), "message": "", "traceback": ""}
    if was_refused and issubclass(type(error), MemoryError):
        # A `MemoryError` that the guest's own code raises is not evidence of the limit.
        unsaid["errno"] = ENOMEM
    result.update(status="exception", error=unsaid)
    try:
        from .claims import claim_error
        from .report import describe_error

        result["error"] = dict(unsaid, **describe_error(error))
        claim_error(error)
    except MemoryError:
        # The guest's threads have used up the reserve too. The name of the exception suffices for the
        # supervisor to name the limit.
        pass


def show_by(hook, result, error):
    """Calls the guest's `sys.excepthook`, which replaces the display of the traceback."""
    try:
        hook(type(error), error, guest_frames(error))
        shown = ""
    except SystemExit as stop:
        describe(result, stop)
        result.pop("error")
        return
    except BaseException as second:
        from .report import format_traceback

        both = format_traceback(second), result["error"]["traceback"]
        shown = cut("Error in sys.excepthook:\n%s\nOriginal exception was:\n%s" % both, MAX_TEXT)
    result["error"]["traceback"] = shown


def print_error(result):
    sys.stderr.write(result["error"]["traceback"])


def status_of(result):
    """Returns the exit status of a program with this result."""
    return result.get("exit_code", "error" in result)


def join_threads():
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()


def safe_repr(value):
    try:
        return repr(value)
    except BaseException as error:
        return "<%s, whose repr raises %s>" % (type(value).__name__, type(error).__name__)


def is_plain(value):
    """Returns whether JSON represents the value exactly. Most values do not need the encoder, whose import
    would delay an interpreter that runs a single cell."""
    kind = type(value)
    if value is None or kind is bool:
        return True
    if kind is int:
        return -(2**63) <= value < 2**63
    if kind is float:
        return value - value == 0
    return kind is str and len(value) <= MAX_TEXT and value.isascii()

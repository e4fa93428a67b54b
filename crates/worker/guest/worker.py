"""Serves in a worker. Guest code runs in the same process and can change or forge everything here,
so the supervisor relies on nothing that this module decides.

Large packages are imported where they are needed, so that an interpreter that runs a single cell
does not wait for them. An interpreter that serves many cells imports them in `warm_up`."""

import _signal
import builtins
import errno
import os
import sys
from os import _exit, getpid, sched_yield

from . import wire
from .cell import (
    MAX_TEXT,
    clean,
    cut,
    execute,
    exit_code,
    forget_source,
    set_argv,
)
from .ending import end_as_child, finish
from .process import open_stdin, reseed
from .program import describe_main, link_project

VERSION = 2
MAX_REPR = 16 * 1024
# Maximum bytes of the buffers of a run's value, which the supervisor keeps until the caller takes the
# result. The supervisor has the same bound.
MAX_BUFFERS = 4 << 20
READY = wire.encode({"kind": "ready", "version": VERSION})
# Imports nothing, because a policy may allow no module.
REHEARSED = b"def f(x):\n    return [x + 1]\n\nprint(end='')\nstr(f(1))"


def main(setup, stdin):
    if stdin == "input":
        open_stdin()
    reseed()
    if "*" not in setup["imports"]:
        from .imports import guard_imports

        guard_imports(setup["imports"])
    # The work directory comes first: code that writes a module expects to import it.
    sys.path.insert(0, os.getcwd())
    project = setup["project"]
    if project is not None:
        sys.path.insert(0, project)
    # Blocks an interrupt of the first cell until its handler is installed.
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGINT])
    wire.write(READY)
    hello, _ = wire.receive_alone()
    session = None
    if hello["kind"] == "rehearse":
        session = rehearse(hello["serves"])
        hello, _ = wire.receive_alone()
    if hello.get("serves") == "session":
        from .session import Session

        (session or Session()).serve(stdin, mask, project)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    request, payload = wire.receive()
    if project is not None:
        link_project(project)
    if request["kind"] == "exec":
        run_program(request)
    _exit(run_cell(request, payload))


def warm_up():
    """Imports and allocates what the first cell would otherwise import and allocate in every worker.

    `threading` is not imported: most guests never use it, and its hook after a fork would cost each
    worker more than a small cell."""
    import json  # noqa: F401, most guests do
    import linecache

    from . import session
    from .report import describe_error

    rehearse("one-run")
    try:
        exec(compile("1/0", "<warm>", "exec"), {})
    except ZeroDivisionError as error:
        wire.dumps(describe_error(error))
    session.warm_up()
    forget_source("<warm>")
    linecache.clearcache()


def rehearse(serves):
    """Runs a rehearsal cell. Returns the session in which it ran, if the worker serves a session."""
    session = None
    if serves == "session":
        from .session import Session

        session = Session()
        session.rehearse("<warm>")
    else:
        main = sys.modules["__main__"]
        request = {"id": 0, "filename": "<warm>", "argv": []}
        result, _, _ = evaluate(wire.loads(wire.dumps(request)), REHEARSED)
        wire.encode(result)
        sys.modules["__main__"] = main
    forget_source("<warm>")
    return session


def run_cell(request, source):
    worker = getpid()
    result, code, payload = evaluate(request, source)
    if getpid() != worker:
        end_as_child(result, code)
    code = finish(result, code)
    if "value" not in result:
        # A shutdown step has failed: the value's buffers belong to nothing.
        result.pop("blob", None)
        payload = b""
    try:
        wire.write(wire.encode(result, payload))
        # The kernel often places the woken supervisor on this processor. Without the yield, the exit
        # of the interpreter would delay it for half a millisecond.
        sched_yield()
    except OSError:
        # The guest closed or broke the socket. The exit status still shows how it ended.
        pass
    return code


def evaluate(request, source):
    """Runs a cell. Returns its result, the exit status and the bytes of the value's buffers."""
    filename, kind = request["filename"], request.get("source", "file")
    set_argv(filename, request["argv"])
    main_module = type(sys)("__main__")
    main_module.__builtins__ = builtins
    describe_main(main_module.__dict__, filename, source, kind)
    sys.modules["__main__"] = main_module
    result = {"kind": "result", "id": request["id"], "status": "ok"}
    code = 0
    payload = b""
    try:
        value = execute(source, kind, filename, main_module.__dict__)
        payload = add_value(result, value)
    except SystemExit as stop:
        code = exit_code(stop)
        result.update(status="exit", exit_code=code)
    except BaseException as error:
        from .report import denied_by, describe_error

        code = 1
        result.update(status="exception", error=describe_error(error), denied=denied_by(error))
    return result, code, payload


def run_program(request):
    argv = request["argv"]
    terminal = request.get("terminal")
    if terminal is not None:
        from .terminal import begin_terminal

        begin_terminal(terminal)
    # CPython ignores both signals, but a program expects the defaults.
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, os.environ)
    except OSError as error:
        from .report import describe_error

        wire.send(
            {
                "kind": "result",
                "id": request["id"],
                "status": "exception",
                "error": describe_error(error),
            }
        )
        _exit(126 if error.errno == errno.EACCES else 127)


def add_value(result, value):
    """Adds the value of a run to its result. Returns the bytes of its buffers."""
    if is_plain(value):
        result["value"] = value
        return b""
    try:
        result["value"], lengths, payload = encode_value(value)
    except Exception:
        # The value is too large, or the guest has changed what the import of the encoder needs.
        name, shown = clean(type(value).__name__), cut(safe_repr(value), MAX_REPR)
        result["value"] = {"type": "opaque", "name": name, "repr": shown}
        return b""
    if lengths:
        result["blob"] = {"lengths": lengths}
    return payload


def encode_value(value):
    """The tree of a value, and the lengths and the bytes of its buffers. Raises `ValueError` if they are
    too large for a run."""
    from . import values

    encoder = values.Encoder()
    tree = encoder.encode(value)
    lengths = [len(buffer) for buffer in encoder.buffers]
    if values.layout(lengths)[1] > MAX_BUFFERS:
        raise ValueError
    return tree, lengths, b"".join(values.pieces(encoder.buffers))


def safe_repr(value):
    try:
        return repr(value)
    except BaseException as error:
        return "<%s, whose repr raises %s>" % (type(value).__name__, type(error).__name__)


def is_plain(value):
    """Whether JSON represents the value as it is. Most values do not need the encoder, whose import
    would delay an interpreter that runs a single cell."""
    kind = type(value)
    if value is None or kind is bool:
        return True
    if kind is int:
        return -(2**63) <= value < 2**63
    if kind is float:
        return value - value == 0
    return kind is str and len(value) <= MAX_TEXT and value.isascii()

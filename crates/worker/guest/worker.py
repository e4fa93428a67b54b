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
from os.path import abspath

from . import wire
from .cell import (
    MAX_TEXT,
    Lines,
    clean,
    cut,
    execute,
    exit_code,
    forget_source,
    set_argv,
)
from .ending import end_as_child, finish
from .process import open_stdin, reseed

VERSION = 2
MAX_REPR = 16 * 1024
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

        (session or Session()).serve(stdin, mask)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    request, payload = wire.receive()
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
        result, _ = evaluate(wire.loads(wire.dumps(request)), REHEARSED)
        wire.encode(result)
        sys.modules["__main__"] = main
    forget_source("<warm>")
    return session


def run_cell(request, source):
    worker = getpid()
    result, code = evaluate(request, source)
    if getpid() != worker:
        end_as_child(result, code)
    code = finish(result, code)
    try:
        wire.send(result)
        # The kernel often places the woken supervisor on this processor. Without the yield, the exit
        # of the interpreter would delay it for half a millisecond.
        sched_yield()
    except OSError:
        # The guest closed or broke the socket. The exit status still shows how it ended.
        pass
    return code


def evaluate(request, source):
    """Runs a cell. Returns its result and the exit status."""
    filename, kind = request["filename"], request.get("source", "file")
    set_argv(filename, request["argv"])
    main_module = type(sys)("__main__")
    main_module.__builtins__ = builtins
    if not filename.startswith("<"):
        main_module.__file__ = abspath(filename)
        main_module.__loader__ = Lines(source, kind)
    sys.modules["__main__"] = main_module
    result = {"kind": "result", "id": request["id"], "status": "ok"}
    code = 0
    try:
        value = execute(source, kind, filename, main_module.__dict__)
        result["value"] = encode_value(value)
    except SystemExit as stop:
        code = exit_code(stop)
        result.update(status="exit", exit_code=code)
    except BaseException as error:
        from .report import denied_by, describe_error

        code = 1
        result.update(status="exception", error=describe_error(error), denied=denied_by(error))
    return result, code


def run_program(request):
    argv = request["argv"]
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


def encode_value(value):
    """The value of a run in JSON. A value that is not a short scalar is sent as its `repr`."""
    if value is None or isinstance(value, bool):
        return value
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if type(value) is float and value - value == 0:
        return value
    if type(value) is str and len(value) <= MAX_TEXT:
        return clean(value)
    shown = cut(safe_repr(value), MAX_REPR)
    return {"type": "opaque", "name": clean(type(value).__name__), "repr": shown}


def safe_repr(value):
    try:
        return repr(value)
    except BaseException as error:
        return "<%s, whose repr raises %s>" % (type(value).__name__, type(error).__name__)

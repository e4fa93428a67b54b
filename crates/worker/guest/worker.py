"""Serves the supervisor in a worker. Guest code runs in the same process and can change or forge everything
here, so the supervisor relies on nothing that this module decides.

Large modules are imported where they are used, so that an interpreter that runs a single cell does not wait
for them. An interpreter that serves many cells imports them in `warm_up`."""

import _signal
import _warnings
import atexit
import builtins
import errno
import os
import sys
import time
from os import _exit

from . import wire
from .cell import AS_ERROR, CLAIMS
from .ending import end_program
from .process import needs_seed, open_stdin, reseed
from .program import link_project
from .runner import REHEARSED, Runner, annotations, reserve

VERSION = 2
READY = wire.encode({"kind": "ready", "version": VERSION})


def main(native, setup, offered, stdin, changed, has_begun, left):
    """Serves the supervisor. `offered` is the tuple for the native run path, or `None` if Python serves
    everything. With `has_begun` that path has already served, and `left` is the work that it left."""
    if not has_begun:
        begin(setup, stdin, changed)
        # Blocks an interrupt of the first cell until its handler is installed.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGINT])
        left = wire.write(READY) if offered is None else native.run(offered)
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, []) - {_signal.SIGINT}
    if left is not None:
        take_over(mask, left)
    project = setup["project"]
    hello, order = wire.receive_alone()
    # The supervisor has checked the worker.
    native.limit_objects(None)
    serves = hello.get("serves")
    if serves == "session":
        from .session import Session

        runner = Session(native)
    else:
        runner = Runner(os.getpid())
    if hello["kind"] == "rehearse":
        runner.rehearse()
        hello, order = wire.receive_alone()
    if serves == "session" or hello["kind"] == "restore":
        native.programs(sys.executable)
    if hello["kind"] == "restore":
        restore(native, hello["id"], order)
    if serves == "session":
        runner.serve(stdin, mask, project)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    request, payload = wire.receive()
    if project is not None:
        link_project(project)
    if request.get("terminal") is not None:
        from .terminal import begin_terminal

        # From here on, this is a child with its own terminal.
        begin_terminal(request["terminal"])
        runner.worker = os.getpid()
    if request["kind"] == "exec":
        run_program(request)
    # A run is a session of one cell.
    request["then"] = "end"
    runner.run_cell(request, payload)


def begin(setup, stdin, changed):
    """Sets up the state that this worker does not share with others."""
    if changed:
        os.environ.update(wire.loads(changed))
        time.tzset()
    if stdin == "input":
        open_stdin()
    reseed()
    work = os.getcwd()
    if sys.path[0] != work:
        # First, because code that writes a module expects to import it.
        sys.path.insert(0, work)
    if setup["project"] is not None:
        sys.path.insert(0, setup["project"])


def restore(native, number, order):
    """Replaces this worker's memory by another worker's, which then replies to the request."""
    try:
        native.restore("%d\n%s" % (number, order.decode("utf-8")))
    except Exception as error:
        from .report import describe_error

        description = describe_error(error)
        wire.send({"kind": "result", "id": number, "status": "exception", "error": description})
    _exit(1)


def take_over(mask, left):
    """Continues a run where the native path stopped: before its program, or after it."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    worker, header, source, main = left[:4]
    request = {**wire.loads(header.decode("utf-8")), "then": "end"}
    runner, is_new, main = Runner(worker, main), main is None, None
    # No frame may keep a variable of the program: they end before this function does.
    ended = left[4:]
    left.clear()
    if is_new:
        runner.run_cell(request, source)
    runner.take_over(request, source, ended)


def offer():
    """Returns the tuple for the native run path, in the order of its `Offer`."""
    linecache = sys.modules.get("linecache")
    return (
        reseed if needs_seed() else None,
        READY,
        REHEARSED,
        builtins,
        # Each worker has its own copy, like all memory of the zygote.
        annotations(),
        sys.modules.get("warnings", _warnings).filters,
        AS_ERROR,
        None if linecache is None else linecache.cache,
        atexit._ncallbacks,
        CLAIMS.__len__,
        end_program,
        reserve.release,
    )


def load():
    """Imports modules that a worker for a single cell imports only on first use."""
    from . import report, session  # noqa: F401


def warm_up(native):
    """Imports and allocates what the first cell would otherwise import and allocate in every worker.

    `threading` is not imported: most guests never use it, and its after-fork hook would cost each worker more
    than a small cell."""
    import json  # noqa: F401, most guests import it
    import linecache

    from . import session
    from .claims import claim_error
    from .report import describe_error

    main = sys.modules["__main__"]
    runner = Runner(os.getpid())
    for _ in range(10):
        runner.rehearse()
        native.rehearse(offer())
    sys.modules["__main__"] = main
    try:
        exec(compile("1/0", "<warm>", "exec"), {})
    except ZeroDivisionError as error:
        wire.dumps(describe_error(error))
        claim_error(error)
    session.warm_up()
    linecache.clearcache()


def run_program(request):
    argv = request["argv"]
    # CPython ignores both signals, but a program expects the defaults.
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, os.environ)
    except OSError as error:
        from .report import describe_error

        # The error names the last path that was tried, which is less helpful.
        error.filename = argv[0]
        wire.send(
            {
                "kind": "result",
                "id": request["id"],
                "status": "exception",
                "error": describe_error(error),
            }
        )
        _exit(126 if error.errno == errno.EACCES else 127)

"""Serves in a worker. Guest code runs in the same process and can change or forge everything here,
so the supervisor relies on nothing that this module decides.

Large packages are imported where they are needed, so that an interpreter that runs a single cell
does not wait for them. An interpreter that serves many cells imports them in `warm_up`."""

import _signal
import errno
import os
import sys
from os import _exit

from . import wire
from .process import open_stdin, reseed
from .program import link_project
from .runner import Runner

VERSION = 2
READY = wire.encode({"kind": "ready", "version": VERSION})


def main(native, setup, stdin):
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
    serves = hello.get("serves")
    if serves == "session":
        from .session import Session

        runner = Session(native.trim)
    else:
        runner = Runner()
    if hello["kind"] == "rehearse":
        runner.rehearse()
        wire.receive_alone()
    if serves == "session":
        runner.serve(stdin, mask, project)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    request, payload = wire.receive()
    if project is not None:
        link_project(project)
    if request["kind"] == "exec":
        run_program(request)
    # A run is a session of one cell.
    request["then"] = "end"
    runner.run_cell(request, payload)


def load():
    """Imports what a worker that runs a single cell imports only on first use."""
    from . import report, session  # noqa: F401


def warm_up():
    """Imports and allocates what the first cell would otherwise import and allocate in every worker.

    `threading` is not imported: most guests never use it, and its hook after a fork would cost each
    worker more than a small cell."""
    import json  # noqa: F401, most guests do
    import linecache

    from . import session
    from .report import describe_error

    main = sys.modules["__main__"]
    runner = Runner()
    for _ in range(10):
        runner.rehearse()
    sys.modules["__main__"] = main
    try:
        exec(compile("1/0", "<warm>", "exec"), {})
    except ZeroDivisionError as error:
        wire.dumps(describe_error(error))
    session.warm_up()
    linecache.clearcache()


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

"""The interpreter's shutdown steps of a program, which a worker runs before it reports."""

import atexit
import sys
from os import _exit

from .process import flush


def join_threads():
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()


def finish(result, code):
    """Runs the shutdown steps, and changes the result if one of them fails. The supervisor's limits
    end a thread or a handler that takes too long."""
    for last_act in (join_threads, atexit._run_exitfuncs, flush):
        try:
            last_act()
        except BaseException as error:
            if result["status"] == "ok":
                from .report import describe_error

                code = 1
                result.pop("value", None)
                result.update(status="exception", error=describe_error(error))
    return code


def end_as_child(result, code):
    """Ends a child that the guest forked and that reached the end of the cell."""
    if "error" in result:
        sys.stderr.write(result["error"]["traceback"])
    try:
        atexit._run_exitfuncs()
        flush()
    finally:
        _exit(code)

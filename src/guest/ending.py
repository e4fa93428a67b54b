"""What an interpreter does at the end of a program, which a worker does before it reports."""

import atexit
import sys
from os import _exit

from .process import flush


def join_threads():
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()


def finish(result, code):
    """Runs the last acts, and changes the result where one of them fails. A thread or a handler
    that overstays is the supervisor's to end, like anything else."""
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
    """A child that the guest forked and that came to the end of the cell on its own."""
    if "error" in result:
        sys.stderr.write(result["error"]["traceback"])
    try:
        atexit._run_exitfuncs()
        flush()
    finally:
        _exit(code)

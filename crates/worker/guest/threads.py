"""Displays exceptions of the guest's threads with their source lines."""

import sys

# Since this version the interpreter's own display finds the lines of code without a file.
QUOTES = sys.version_info >= (3, 13)


def quote_sources(threading):
    """Patches `threading`, whose hook finds only the lines of files."""
    ordinary = threading.excepthook

    def excepthook(args, /):
        stream = sys.stderr
        if args.exc_type is SystemExit or args.exc_value is None or stream is None:
            ordinary(args)
            return
        from .report import format_traceback

        name = threading.get_ident() if args.thread is None else args.thread.name
        stream.write("Exception in thread %s:\n%s" % (name, format_traceback(args.exc_value)))
        stream.flush()

    excepthook.__doc__ = ordinary.__doc__
    threading.excepthook = excepthook
    if hasattr(threading, "__excepthook__"):
        threading.__excepthook__ = excepthook

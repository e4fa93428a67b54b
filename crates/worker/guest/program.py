"""A program in files, as its code finds them: a script at its own path, and the directory of a program
of several files."""

import os
import sys
from os.path import abspath, dirname

from .cell import decoded, text_of

# The work directory has a quota of inodes.
MAX_LINKS = 1024


class Lines:
    """A loader that provides a script's lines to `linecache` and similar code, if there is no file."""

    def __init__(self, source, kind):
        self.source = source
        self.kind = kind

    def get_source(self, name):
        return text_of(decoded(self.source, self.kind))


def describe_main(main, filename, source, kind):
    """Tells `__main__` of its file, which a cell of a session or a `-c` has not."""
    if filename.startswith("<"):
        main.pop("__file__", None)
        return
    path = abspath(filename)
    loader = Lines(source, kind)
    if os.access(path, os.R_OK):
        from _frozen_importlib_external import SourceFileLoader

        loader = SourceFileLoader("__main__", path)
        # Modules beside it are there only if the policy shows them.
        if dirname(path) not in sys.path:
            sys.path.insert(0, dirname(path))
    main.update(__file__=path, __cached__=None, __loader__=loader)


def run_module(name):
    """Runs a module as `python -m` does."""
    import importlib.util
    import runpy

    from .imports import require

    require(name)
    top = name.partition(".")[0]
    # `runpy` would print the error and exit.
    if importlib.util.find_spec(top) is None:
        raise ModuleNotFoundError("No module named %r" % top, name=top)
    runpy._run_module_as_main(name)


def check_project(directory):
    os.scandir(directory).close()


def link_project(directory):
    """Links the project's files in the work directory, where its code may also write others."""
    for name in sorted(os.listdir(directory))[:MAX_LINKS]:
        try:
            os.symlink(os.path.join(directory, name), name)
        except OSError:
            # A file of the caller has the name, or the quota leaves no room.
            pass

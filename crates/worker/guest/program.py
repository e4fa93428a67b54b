"""Sets up a program in files: a script at its own path, and the directory of a program with several files."""

import os
import sys
from os.path import abspath, dirname

from .cell import decoded, text_of

# The work directory has an inode quota.
MAX_LINKS = 1024


class Lines:
    """A loader that provides a script's lines to `linecache` and similar code, if there is no file."""

    def __init__(self, source, kind):
        self.source = source
        self.kind = kind

    def get_source(self, name):
        return text_of(decoded(self.source, self.kind))


def describe_main(main, filename, source, kind):
    """Sets the variables of `__main__` that describe its file. Cells of a session and `-c` programs have
    none."""
    if filename.startswith("<"):
        main.pop("__file__", None)
        return
    path = abspath(filename)
    loader = Lines(source, kind)
    if os.access(path, os.R_OK):
        from _frozen_importlib_external import SourceFileLoader

        loader = SourceFileLoader("__main__", path)
        # Modules beside the script are visible only if the policy shows them.
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
    """Links the project's files into the work directory, where its code may also write others."""
    for name in sorted(os.listdir(directory))[:MAX_LINKS]:
        try:
            os.symlink(os.path.join(directory, name), name)
        except OSError:
            # A file of the caller has the name, or the quota is used up.
            pass

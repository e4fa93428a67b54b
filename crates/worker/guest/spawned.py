"""Refuses to send functions and classes of a `__main__` without a file to freshly started Python processes
(`spawn`, `forkserver`), which cannot import them. A pool would otherwise start one process after another,
each of which dies at its first task."""

import sys

REMEDY = (
    "write it to a module in the work directory and import it, or use "
    '`multiprocessing.get_context("fork")`, whose processes have what is defined here'
)


def refuse_lost(starter):
    """Patches the pickler, once a module that starts fresh processes is loaded."""
    starter.reduction.ForkingPickler.reducer_override = reduced


def reduced(pickler, item):
    """Called by the pickler for objects other than plain values."""
    kind = type(item)
    if (kind is type(reduced) or issubclass(kind, type)) and is_of_main(item):
        method = method_of_readers()
        if method is not None:
            from pickle import PicklingError

            name = item.__qualname__
            raise PicklingError(
                "a process of the start method %r cannot import %r from `__main__`, which is not a file here: %s"
                % (method, name, REMEDY)
            )
    return NotImplemented


def is_of_main(item):
    """Returns whether the object is found by name in a `__main__` that a fresh process cannot load."""
    if getattr(item, "__module__", None) != "__main__" or "<" in item.__qualname__:
        return False
    main = sys.modules["__main__"]
    return getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None


def method_of_readers():
    """Returns the start method of the processes that may unpickle the object; `None` if one is a fork of this
    process."""
    from multiprocessing.context import get_spawning_popen
    from multiprocessing.process import _children

    popen = get_spawning_popen()
    if popen is not None:
        return popen.method
    methods = {getattr(child._popen, "method", None) for child in list(_children)}
    return None if "fork" in methods or not methods else methods.pop()

"""Ends a program as the interpreter does: writes and closes its files, and runs `__del__` methods."""

import _io
import _thread
import gc
import sys
from _weakref import ref

# Bound here, because the guest may modify these modules.
collect, count, stats, getrefcount = gc.collect, gc.get_count, gc.get_stats, sys.getrefcount
list_objects, count_threads = gc.get_objects, _thread._count
ModuleType = type(sys)
# Reads a module's own variables, which its class cannot override.
variables_of = ModuleType.__dict__["__dict__"].__get__
WRITERS = (_io.TextIOWrapper, _io.BufferedWriter, _io.BufferedRandom, _io.BufferedRWPair)
LAST_ERROR = ("last_type", "last_value", "last_traceback", "last_exc")
# The state before a program: the module that was imported last, and the number of collections of the oldest
# generation. `None` and -1 in a zygote, whose modules do not belong to a program.
last_module = None
aged = -1
# `sys.stdout` and `sys.stderr` before a program. A preloaded package may have replaced the interpreter's
# streams.
streams = {}
# The exit status of an interpreter that could not write all of its output.
LOST_OUTPUT = 120
# The library directories.
libraries = ()


class Unwritten(Exception):
    """A stream cannot be flushed at a program's end. The message is the interpreter's own."""


def note_libraries():
    """Records the library directories. Must be called before other directories are added to `sys.path`."""
    global libraries
    libraries = tuple([path.rstrip("/") + "/" for path in sys.path if path])


def note_start():
    """Records the state before a program. Must be called when the zygote only forks workers from here on."""
    global aged, last_module
    aged = stats()[2]["collections"]
    last_module = next(reversed(sys.modules))
    streams.update(stdout=sys.stdout, stderr=sys.stderr)


def flush():
    for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
        if is_open(stream):
            stream.flush()


def is_open(stream):
    """Returns whether to flush a stream. Like the interpreter, treats a stream whose `closed` raises as
    open."""
    try:
        return stream is not None and not stream.closed
    except BaseException:
        return True


def flush_last():
    """Flushes both streams, even if one fails."""
    failed = ""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        try:
            if is_open(stream):
                stream.flush()
        except BaseException as error:
            # The interpreter reports nothing about `sys.stderr`.
            failed = failed or (unwritten(stream, error) if name == "stdout" else " ")
    if failed:
        raise Unwritten(failed)


def flush_again():
    """Flushes both streams after `flush_last`, which has already reported what cannot be written."""
    for name in streams:
        if is_detached(getattr(sys, name, None)):
            setattr(sys, name, None)
    try:
        flush_last()
    except Unwritten:
        raise Unwritten("") from None


def is_detached(stream):
    """Returns whether the program has taken the stream's buffer (`detach`), for example to wrap it again.
    Such a stream has nothing to write."""
    try:
        return issubclass(type(stream), _io.TextIOWrapper) and stream.buffer is None
    except ValueError:
        return True


def unwritten(stream, error):
    """Returns the interpreter's message about a stream that it cannot flush."""
    from .report import format_traceback, last_line, safe_str

    shown = format_traceback(error) if guest_frames(error) else last_line(error, safe_str(error))
    if sys.version_info >= (3, 13):
        while_flushing = "while" if sys.version_info >= (3, 14) else "on"
        return "Exception ignored %s flushing sys.stdout:\n%s" % (while_flushing, shown)
    return "Exception ignored in: %r\n%s" % (stream, shown)


def note_unwritten(result, text):
    """Changes a result to that of a program whose output is lost, unless it already has an exception."""
    try:
        show_on(sys.stderr, text.lstrip())
    except BaseException:
        pass
    if "error" not in result:
        result.pop("value", None)
        result.update(status="exit", exit_code=LOST_OUTPUT)


def note_last(error):
    """Sets the variables in which the next cell, `atexit` functions and debuggers find an uncaught
    exception."""
    if issubclass(type(error), MemoryError):
        # Its frames would keep alive the variables that have used up the memory, as would those of an earlier
        # exception.
        for name in LAST_ERROR:
            variables_of(sys).pop(name, None)
        return
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, guest_frames(error)
    if sys.version_info >= (3, 12):
        sys.last_exc = error


def guest_frames(error):
    """Strips this package's frames from the exception's traceback, and returns the traceback."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith("<sandfork "):
        trace = trace.tb_next
    BaseException.with_traceback(error, trace)
    return trace


def has_own_stderr():
    ordinary = streams.get("stderr")
    return getattr(sys, "stderr", ordinary) is not ordinary


def show_on(stream, text):
    """Prints on a stream, which may be the guest's."""
    if stream is not None:
        stream.write(text)
        stream.flush()


def end_program():
    """Clears the variables of `__main__`, then those of the program's other modules, and flushes remaining
    files."""
    try:
        restore_system()
        # This orders objects that hold a file before the file, so that the next collection writes before it
        # closes. Survivors of an earlier collection are already in this order. Garbage ends before the
        # variables, as in the interpreter.
        collect(0 if had_no_full_collection() else 2)
        left = remove_modules()
        collect(1 if are_young() else 2)
        # A running thread keeps its variables alive, and Python would not end them either.
        if not count_threads():
            if clear_all(left):
                collect(2)
            flush_writers()
    except Exception:
        # The guest has replaced `sys.modules`, or memory is used up.
        pass


def restore_system():
    """Removes what the guest has set in `sys`: its streams, and its last exception with the variables of the
    frames."""
    system = variables_of(sys)
    for name, stream in streams.items():
        if system.get(name) is not stream:
            system[name] = system.get("__%s__" % name)
    if "last_type" in system:
        for name in LAST_ERROR:
            if name in system:
                system[name] = None


def had_no_full_collection():
    return stats()[2]["collections"] == aged


def are_young():
    """Returns whether no object of this program is in the oldest generation. Collecting that generation also
    frees the interpreter's free lists, which are in pages that the worker shares with the zygote."""
    return sys.version_info < (3, 14) and count()[2] == 0 and had_no_full_collection()


def remove_modules():
    """Removes `__main__` and the program's own modules. Returns weak references to them."""
    modules, left = sys.modules, []
    for name in ("__main__", *own_modules(modules)):
        module, modules[name] = modules.get(name), None
        if issubclass(type(module), ModuleType):
            # Functions and classes refer to the variables, which are therefore freed by a collection, as a
            # cycle. With the module in the cycle, the weak reference shows whether they were.
            if getrefcount(variables_of(module)) > 2:
                variables_of(module)[""] = module
            left.append(ref(module))
        module = None
    return left


def own_modules(modules):
    """Returns the names of the program's own modules, in import order. Library modules stay: there are many,
    and ending them would take longer than most programs run."""
    names = []
    for name in () if last_module is None else reversed(modules):
        if name == last_module:
            break
        if name != "__main__" and is_own(modules[name]):
            names.append(name)
    return names[::-1]


def is_own(module):
    """Returns whether the program created the module, or loaded it from a file outside the libraries."""
    if not issubclass(type(module), ModuleType):
        return module is not None
    variables = variables_of(module)
    file = variables.get("__file__")
    return not file.startswith(libraries) if type(file) is str else variables.get("__spec__") is None


def clear_all(left):
    """Clears the variables of modules that something else still refers to. Returns the number of these
    modules."""
    cleared = 0
    for module in [module() for module in reversed(left)]:
        if module is not None:
            cleared += 1
            clear(variables_of(module))
    return cleared


def clear(variables):
    """Clears variables that something else still refers to, such as a cache of `typing` or a signal handler.
    Objects that a `__del__` may use are cleared after it has run."""
    for ends in has_finalizer, is_data, bool:
        for name in list(variables):
            if name != "__builtins__" and ends(type(variables.get(name))):
                variables[name] = None


def has_finalizer(kind):
    return hasattr(kind, "__del__")


def is_data(kind):
    return not issubclass(kind, (ModuleType, type, type(clear)))


def flush_writers():
    """Flushes files that something else still refers to: an attribute of a library module, a context
    variable, a C object. The interpreter would end them together with all modules."""
    found = list_objects()
    kinds = {kind for kind in set(map(type, found)) if issubclass(kind, WRITERS)}
    if not kinds:
        return
    for writer in found:
        if type(writer) in kinds:
            try:
                writer.flush()
            except Exception:
                # The file is closed or cannot be written. The interpreter would not report that either.
                pass

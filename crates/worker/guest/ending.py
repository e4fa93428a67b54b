"""Ends a program as the interpreter does: its files are written and closed, and `__del__` runs."""

import _io
import _thread
import gc
import sys
from _weakref import ref

# The guest may change these modules.
collect, count, stats, getrefcount = gc.collect, gc.get_count, gc.get_stats, sys.getrefcount
list_objects, count_threads = gc.get_objects, _thread._count
ModuleType = type(sys)
# Reads a module's own variables, which its class cannot override.
variables_of = ModuleType.__dict__["__dict__"].__get__
WRITERS = (_io.TextIOWrapper, _io.BufferedWriter, _io.BufferedRandom, _io.BufferedRWPair)
LAST_ERROR = ("last_type", "last_value", "last_traceback", "last_exc")
# What there was before a program: the module that was imported last, and how often the oldest generation was collected.
# `None` and -1 in a zygote, whose modules are no program's.
last_module = None
aged = -1
# `sys.stdout` and `sys.stderr` before a program. A preloaded package may have replaced the interpreter's.
streams = {}
# The exit status of an interpreter that could not write all of its output.
LOST_OUTPUT = 120
# The directories of libraries.
libraries = ()


class Unwritten(Exception):
    """A stream cannot be flushed at a program's end. The text is what the interpreter says of it."""


def note_libraries():
    """Notes where libraries are. To call before other directories are added to `sys.path`."""
    global libraries
    libraries = tuple([path.rstrip("/") + "/" for path in sys.path if path])


def note_start():
    """Notes what there is before a program. To call when the zygote forks only workers from here on."""
    global aged, last_module
    aged = stats()[2]["collections"]
    last_module = next(reversed(sys.modules))
    streams.update(stdout=sys.stdout, stderr=sys.stderr)


def flush():
    for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
        if is_open(stream):
            stream.flush()


def is_open(stream):
    """Whether to flush it. As for the interpreter, a stream of the guest's that does not say is open."""
    try:
        return stream is not None and not stream.closed
    except BaseException:
        return True


def flush_last():
    """Flushes both streams, though one may fail."""
    failed = ""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        try:
            if is_open(stream):
                stream.flush()
        except BaseException as error:
            # The interpreter says nothing of `sys.stderr`.
            failed = failed or (unwritten(stream, error) if name == "stdout" else " ")
    if failed:
        raise Unwritten(failed)


def flush_again():
    """Flushes both streams after `flush_last`, which has said what cannot be written."""
    for name in streams:
        if is_detached(getattr(sys, name, None)):
            setattr(sys, name, None)
    try:
        flush_last()
    except Unwritten:
        raise Unwritten("") from None


def is_detached(stream):
    """Whether a program has taken its buffer (`detach`), as one does that wraps it anew. It has nothing to write."""
    try:
        return issubclass(type(stream), _io.TextIOWrapper) and stream.buffer is None
    except ValueError:
        return True


def unwritten(stream, error):
    """What the interpreter says of a stream that it cannot flush."""
    from .report import format_traceback, last_line, safe_str

    shown = format_traceback(error) if guest_frames(error) else last_line(error, safe_str(error))
    if sys.version_info >= (3, 13):
        while_flushing = "while" if sys.version_info >= (3, 14) else "on"
        return "Exception ignored %s flushing sys.stdout:\n%s" % (while_flushing, shown)
    return "Exception ignored in: %r\n%s" % (stream, shown)


def note_unwritten(result, text):
    """Changes a result to that of a program whose output is lost, unless it has an exception already."""
    try:
        show_on(sys.stderr, text.lstrip())
    except BaseException:
        pass
    if "error" not in result:
        result.pop("value", None)
        result.update(status="exit", exit_code=LOST_OUTPUT)


def note_last(error):
    """Sets what the next cell, `atexit` functions and debuggers read of an exception that nothing has caught."""
    if issubclass(type(error), MemoryError):
        # Its frames would keep the variables that have used up the memory, as would those of an earlier exception.
        for name in LAST_ERROR:
            variables_of(sys).pop(name, None)
        return
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, guest_frames(error)
    if sys.version_info >= (3, 12):
        sys.last_exc = error


def guest_frames(error):
    """Its traceback, which it then has without the frames of this package."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith("<sandfork "):
        trace = trace.tb_next
    BaseException.with_traceback(error, trace)
    return trace


def has_own_stderr():
    ordinary = streams.get("stderr")
    return getattr(sys, "stderr", ordinary) is not ordinary


def show_on(stream, text):
    """Prints on a stream that may be the guest's."""
    if stream is not None:
        stream.write(text)
        stream.flush()


def end_program():
    """Ends the variables of `__main__`, then those of the program's other modules, and writes what is left."""
    try:
        restore_system()
        # It puts what holds a file before the file, so that the next collection writes before it closes. Objects that an
        # earlier collection has left are in this order. What is garbage ends before the variables, as in the interpreter.
        collect(0 if had_no_full_collection() else 2)
        left = remove_modules()
        collect(1 if are_young() else 2)
        # A thread that still runs keeps its variables, which Python would neither end.
        if not count_threads():
            if clear_all(left):
                collect(2)
            flush_writers()
    except Exception:
        # The guest has replaced `sys.modules`, or memory is used up.
        pass


def restore_system():
    """Ends what the guest has set in `sys`: its streams, and its last exception with the variables of the frames."""
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
    """Whether no object of this program is in the oldest generation. To collect that too also frees what the interpreter
    keeps to use again, which lies in pages that the worker shares with the zygote."""
    return sys.version_info < (3, 14) and count()[2] == 0 and had_no_full_collection()


def remove_modules():
    """Removes `__main__` and the program's own modules. Returns weak references to them."""
    modules, left = sys.modules, []
    for name in ("__main__", *own_modules(modules)):
        module, modules[name] = modules.get(name), None
        if issubclass(type(module), ModuleType):
            # Functions and classes refer to the variables, which end in a collection then, as a cycle. With the module
            # in it, the weak reference says whether they did.
            if getrefcount(variables_of(module)) > 2:
                variables_of(module)[""] = module
            left.append(ref(module))
        module = None
    return left


def own_modules(modules):
    """The names of the program's own modules, in the order of their imports. Those of libraries stay: there are many,
    and ending them would cost more time than most programs take."""
    names = []
    for name in () if last_module is None else reversed(modules):
        if name == last_module:
            break
        if name != "__main__" and is_own(modules[name]):
            names.append(name)
    return names[::-1]


def is_own(module):
    """Whether the program has made it, or read it from a file that is no library's."""
    if not issubclass(type(module), ModuleType):
        return module is not None
    variables = variables_of(module)
    file = variables.get("__file__")
    return not file.startswith(libraries) if type(file) is str else variables.get("__spec__") is None


def clear_all(left):
    """Ends the variables of modules that something else refers to. Returns how many there are."""
    cleared = 0
    for module in [module() for module in reversed(left)]:
        if module is not None:
            cleared += 1
            clear(variables_of(module))
    return cleared


def clear(variables):
    """Ends variables that something else refers to, such as a cache of `typing` or the handler of a signal. What a
    `__del__` may use ends after it."""
    for ends in has_end, is_no_code, bool:
        for name in list(variables):
            if name != "__builtins__" and ends(type(variables.get(name))):
                variables[name] = None


def has_end(kind):
    return hasattr(kind, "__del__")


def is_no_code(kind):
    return not issubclass(kind, (ModuleType, type, type(clear)))


def flush_writers():
    """Writes what is left in files that something else refers to: an attribute of a library's module, a context
    variable, an object of C. Their ends would take ending all modules."""
    found = list_objects()
    kinds = {kind for kind in set(map(type, found)) if issubclass(kind, WRITERS)}
    if not kinds:
        return
    for writer in found:
        if type(writer) in kinds:
            try:
                writer.flush()
            except Exception:
                # It is closed, or cannot be written. The interpreter would not say so either.
                pass

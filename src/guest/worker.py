"""Runs cells in a worker. Everything here shares its process with guest code, which can change or
forge any of it: nothing that the supervisor relies on is decided here.

Packages of any size are imported where they are needed: an interpreter that runs a single cell
should not wait for them, and one that serves many imports them in `warm_up`."""

import _ast
import _signal
import atexit
import builtins
import errno
import io
import os
import sys

VERSION = 2
# `CO_FUTURE_*` of CPython's Include/cpython/code.h, the same since 3.8.
FUTURE_FLAGS = 0x1FE0000
# What the interpreter calls a program that is no file.
ARGV0 = {"<string>": "-c", "<stdin>": "-"}
# Characters. Even where each takes six bytes of JSON this is below the supervisor's bounds, which
# end the session when they are exceeded.
MAX_TEXT = 32 * 1024
MAX_REPR = 16 * 1024
# Text of what was run, by the name that tracebacks have for it.
SOURCES = {}
READY = wire.encode({"kind": "ready", "version": VERSION})
REFUSALS = (errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT, errno.ENOSYS, errno.EROFS)


def main(setup, stdin):
    if stdin == "input":
        open_stdin()
    reseed()
    guard_imports(setup["imports"])
    # Before the work directory: code that writes a module and imports it expects it to be found.
    sys.path.insert(0, os.getcwd())
    wire.write(READY)
    while True:
        request, payload = wire.receive()
        kind = request["kind"]
        if kind == "cell":
            code = run_cell(request, payload)
            os._exit(code)
        elif kind == "exec":
            run_program(request)


def warm_up():
    """Runs what the first cell of a worker would otherwise import and allocate in every worker.

    Not `threading`, which most guests never use: its hook after a fork would run in each worker, and
    costs more than a small cell."""
    import json  # noqa: F401, most guests do
    import linecache

    namespace = {"__name__": "__main__", "__builtins__": builtins}
    execute(b"x = 1\nx + 1", "<warm>", namespace)
    try:
        exec(compile("1/0", "<warm>", "exec"), {})
    except ZeroDivisionError as error:
        wire.dumps(describe_error(error))
    encode_value("x")
    SOURCES.clear()
    linecache.clearcache()


# Cells.


def run_cell(request, source):
    worker = os.getpid()
    filename = request["filename"]
    sys.argv = [ARGV0.get(filename, filename), *request["argv"]]
    main_module = type(sys)("__main__")
    main_module.__builtins__ = builtins
    if not filename.startswith("<"):
        main_module.__file__ = os.path.abspath(filename)
        main_module.__loader__ = Lines(source)
    sys.modules["__main__"] = main_module
    result = {"kind": "result", "id": request["id"], "status": "ok"}
    code = 0
    try:
        value = execute(source, filename, main_module.__dict__)
        result["value"] = encode_value(value)
    except SystemExit as stop:
        code = exit_code(stop)
        result.update(status="exit", exit_code=code)
    except BaseException as error:
        code = 1
        result.update(status="exception", error=describe_error(error), denied=denied_by(error))
    if os.getpid() != worker:
        # A child that the guest forked and that came to the end of the cell on its own.
        end_as_child(result, code)
    # As the interpreter does on its way out; a thread or a handler that overstays is the
    # supervisor's to end, like anything else.
    for last_act in (join_threads, atexit._run_exitfuncs, flush):
        try:
            last_act()
        except BaseException as error:
            if result["status"] == "ok":
                code = 1
                result.pop("value", None)
                result.update(status="exception", error=describe_error(error))
    try:
        wire.send(result)
    except OSError:
        # The guest closed or broke the socket: its exit status still says how it ended.
        pass
    return code


def join_threads():
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()


def end_as_child(result, code):
    if "error" in result:
        sys.stderr.write(result["error"]["traceback"])
    try:
        atexit._run_exitfuncs()
        flush()
    finally:
        os._exit(code)


def execute(source, filename, namespace):
    body, last = compile_cell(source, filename)
    SOURCES[filename] = source.decode("utf-8", "replace")
    if "linecache" in sys.modules:
        show_lines()
    exec(body, namespace)
    return None if last is None else eval(last, namespace)


def compile_cell(source, filename):
    """The code of all but the last statement, and of that one when it is an expression."""
    # Not `ast.parse`: its frame would stand in the traceback of a syntax error.
    tree = compile(source, filename, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
    if not tree.body or not isinstance(tree.body[-1], _ast.Expr):
        return compile(tree, filename, "exec", dont_inherit=True), None
    last = _ast.Expression(tree.body.pop().value)
    body = compile(tree, filename, "exec", dont_inherit=True)
    flags = body.co_flags & FUTURE_FLAGS
    return body, compile(last, filename, "eval", flags, dont_inherit=True)


class Lines:
    """Quotes a script's lines to whoever asks as `linecache` does: there is no file to read."""

    def __init__(self, source):
        self.source = source

    def get_source(self, name):
        return self.source.decode("utf-8", "replace")


def show_lines():
    """Lets tracebacks quote the guest's lines, which are in no file."""
    import linecache

    for filename, text in SOURCES.items():
        # Every line ends with one, as in a file that is read: carets are counted from there.
        lines = [line + "\n" for line in text.splitlines()]
        linecache.cache[filename] = (len(text), None, lines, filename)


def exit_code(stop):
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    try:
        print(stop.code, file=sys.stderr)
    except BaseException:
        pass
    return 1


def flush():
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


# Programs.


def run_program(request):
    argv = request["argv"]
    # CPython ignores both; a program expects the defaults.
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, os.environ)
    except OSError as error:
        wire.send(
            {
                "kind": "result",
                "id": request["id"],
                "status": "exception",
                "error": describe_error(error),
            }
        )
        os._exit(126 if error.errno == errno.EACCES else 127)


# What is told of the guest.


def describe_error(error):
    described = {
        "name": type(error).__name__,
        "message": cut(safe_str(error), MAX_TEXT),
        "traceback": cut(format_traceback(error), MAX_TEXT),
    }
    number = getattr(error, "errno", None)
    if isinstance(error, OSError) and isinstance(number, int):
        described["errno"] = number
    return described


def denied_by(error):
    """The refusals behind an uncaught exception: what is seen of denied operations from here."""
    found = []
    while error is not None and len(found) < 16:
        number = getattr(error, "errno", None)
        if isinstance(error, OSError) and number in REFUSALS:
            refusal = {"operation": "system call", "errno": number}
            if isinstance(error.filename, (str, bytes)):
                refusal["operation"] = "file access"
                refusal["target"] = cut(os.fsdecode(error.filename), 4096)
            found.append(refusal)
        error = error.__cause__ or error.__context__
    return found


def format_traceback(error):
    """As Python prints it, without the frames of this file."""
    try:
        import traceback

        show_lines()
        told = traceback.TracebackException(type(error), error, error.__traceback__)
        keep_guest_frames(traceback, told, set())
        return "".join(told.format())
    except BaseException:
        return "%s: %s\n" % (type(error).__name__, safe_str(error))


def keep_guest_frames(traceback, told, seen):
    if told is None or id(told) in seen:
        return
    seen.add(id(told))
    guest = [frame for frame in told.stack if not frame.filename.startswith("<sandfork ")]
    told.stack = traceback.StackSummary.from_list(guest)
    # `exceptions` are those of a group (PEP 654).
    for other in (told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ())):
        keep_guest_frames(traceback, other, seen)


def encode_value(value):
    if value is None or isinstance(value, bool):
        return value
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if type(value) is float and value - value == 0:
        return value
    if type(value) is str and len(value) <= MAX_TEXT:
        return clean(value)
    return {"type": "opaque", "repr": cut(safe_repr(value), MAX_REPR)}


def safe_str(error):
    try:
        return str(error)
    except BaseException as second:
        return "<%s while reading the message>" % type(second).__name__


def safe_repr(value):
    try:
        return repr(value)
    except BaseException as error:
        return "<%s, whose repr raises %s>" % (type(value).__name__, type(error).__name__)


def cut(text, limit):
    text = clean(text)
    return text if len(text) <= limit else text[: limit // 2] + " ... " + text[-limit // 2 :]


def clean(text):
    # Lone surrogates have no UTF-8.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# The process.


def open_streams():
    """New stream objects, made once for all workers: the interpreter made its own while other files
    stood at 0, 1 and 2."""
    open_stdin()
    # Pipes, as in a worker: a stream remembers whether it can seek.
    kept = [os.dup(number) for number in (1, 2)]
    pipe = os.pipe()
    for number in (1, 2):
        os.dup2(pipe[1], number)
        open_output(number)
    for number, copy in zip((1, 2), kept):
        os.dup2(copy, number)
    for number in (*kept, *pipe):
        os.close(number)


def open_stdin():
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(
        io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8", "surrogateescape"
    )


def open_output(number):
    # Line by line, so that what was printed before a kill is not lost.
    stream = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(number, "w", closefd=False)),
        "utf-8",
        "surrogateescape" if number == 1 else "backslashreplace",
        line_buffering=True,
    )
    stream.mode = "w"
    if number == 1:
        sys.stdout = sys.__stdout__ = stream
    else:
        sys.stderr = sys.__stderr__ = stream


def reseed():
    """Gives this worker random numbers of its own.

    `random` sees to itself after a fork, OpenSSL and `tempfile` by the process number, which is
    never the zygote's; what asks the kernel needs nothing. numpy's global generator is left."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def guard_imports(allowed):
    """Refuses, in the guest's own statements, imports that the policy does not list.

    For the message only: this is no wall, and the kernel's layers do not rely on it."""
    if "*" in allowed:
        return
    original = builtins.__import__

    def guarded(name, globals=None, locals=None, fromlist=(), level=0):
        if globals is not None and globals.get("__name__") == "__main__" and level == 0:
            if not is_allowed(name, allowed):
                raise ImportError(
                    "Import of %s is not allowed. Authorized imports are: %s"
                    % (name, ", ".join(sorted(allowed))),
                    name=name,
                )
        return original(name, globals, locals, fromlist, level)

    builtins.__import__ = guarded


def is_allowed(name, allowed):
    parts = name.split(".")
    if name in allowed:
        return True
    return any(".".join(parts[:i]) + ".*" in allowed for i in range(1, len(parts) + 1))

"""Compiles cells and keeps their sources."""

import sys
from io import StringIO

import _warnings

# The file name of a cell whose source is the name of a module to run, like `python -m`.
MODULE = "<-m>"
# Maximum characters. Even at six bytes of JSON per character this is below the supervisor's bounds, beyond
# which it ends the session.
MAX_TEXT = 32 * 1024
# `PyCF_*` and `CO_FUTURE_*` of CPython's headers, unchanged since 3.8. Importing their module `_ast` creates
# a type for each kind of node, which takes 0.6 ms, and the native run path does without it.
ALLOW_TOP_LEVEL_AWAIT, ONLY_AST, FUTURE_FLAGS = 0x2000, 0x400, 0x1FE0000
# All code may use top-level `await`.
FLAGS = ALLOW_TOP_LEVEL_AWAIT
# The `__future__` features that cells have imported. They apply to later cells, as at Python's own prompt.
imported = 0
# The interpreter's `sys.argv[0]` for a program that is not in a file.
ARGV0 = {"<string>": "-c", "<stdin>": "-", MODULE: "-m"}
# The sources of cells by their file name in tracebacks, and the maximum bytes or characters to keep.
SOURCES = {}
MAX_SOURCES = 16 << 20
kept_length = 0
# The refusals that the guest met during the cell, for its result (`claims.py`).
CLAIMS = {}
# An entry of `warnings.filters` that turns every warning into an error.
AS_ERROR = ("error", None, Warning, None, 0)
MAX_NAME = 256
# Reads a class's own name, which its metaclass cannot override.
NAME_OF = type.__dict__["__name__"].__get__


def decoded(source, kind):
    """Decodes the source if it may have a coding line (PEP 263). A file has the encoding that its coding line
    names. Text is UTF-8, and its coding line has no effect."""
    if b"coding" not in b"\n".join(source.split(b"\n", 2)[:2]):
        return source
    try:
        if kind == "text":
            return source.decode("utf-8-sig")
        # Imports `tokenize`, which few programs need.
        from importlib.util import decode_source

        return decode_source(source)
    except (LookupError, SyntaxError, UnicodeDecodeError):
        # The compiler raises Python's own error.
        return source


def text_of(source):
    return source if isinstance(source, str) else source.decode("utf-8", "replace")


def parse(source, filename):
    # `ast.parse` would add its own frame to the traceback of a syntax error.
    return compile(source, filename, "exec", FLAGS | imported | ONLY_AST, dont_inherit=True)


def pop_last_expression(tree):
    if tree.body and NAME_OF(type(tree.body[-1])) == "Expr":
        return tree.body.pop().value
    return None


def compile_both(tree, last, filename):
    """Returns the code of everything but the trailing expression, and the code of that expression. Each may
    be `None`."""
    global imported
    body = compile(tree, filename, "exec", FLAGS | imported, dont_inherit=True) if tree.body else None
    if body is not None:
        imported |= body.co_flags & FUTURE_FLAGS
    if last is None:
        return body, None
    expression = compile("0", filename, "eval", ONLY_AST, dont_inherit=True)
    expression.body = last
    return body, compile(expression, filename, "eval", FLAGS | imported, dont_inherit=True)


def compile_text(native, source, filename, wanted):
    """Like `compile_both`, without a syntax tree, which takes as long to create and read as all the rest.
    Returns `None` if a tree is needed or a warning must be shown."""
    if imported or type(source) is not bytes:
        return None
    filters = getattr(sys.modules.get("warnings", _warnings), "filters", None)
    # The guest may have replaced the list.
    return native.compile((source, filename, wanted, filters, AS_ERROR)) if type(filters) is list else None


def set_argv(filename, argv):
    # `python DIRECTORY` runs the `__main__.py` in the directory.
    name = ARGV0.get(filename) or filename.removesuffix("/__main__.py") or filename
    sys.argv = [name, *argv]
    # Otherwise a guest would see the program text of the zygote.
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = [sys.executable, *sys.argv] if name else [sys.executable]


def exit_code(stop):
    """Returns the exit status of a `SystemExit`, whose attributes may be guest code."""
    try:
        code = stop.code
    except BaseException:
        code = stop
    if code is None:
        return 0
    if issubclass(type(code), int):
        code = int.__index__(code)
        # Python converts an integer that does not fit into a C `long` to -1.
        return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
    try:
        print(code, file=sys.stderr)
    except BaseException:
        pass
    return 1


def keep_source(filename, source):
    """Keeps the source for tracebacks."""
    note_source(filename, source)
    # Not imported here. A loaded module may be the guest's own, or `None`.
    linecache = sys.modules.get("linecache")
    if linecache is not None:
        try:
            linecache.cache[filename] = line_entry(filename)
        except Exception:
            # The guest has replaced or modified the module.
            pass


def note_source(filename, source):
    """Keeps the source for reports. Drops the oldest cells of a long session."""
    global kept_length
    kept_length += len(source) - len(SOURCES.pop(filename, ""))
    SOURCES[filename] = source
    while kept_length > MAX_SOURCES and len(SOURCES) > 1:
        kept_length -= len(SOURCES.pop(next(iter(SOURCES))))


def forget_source(filename):
    global kept_length
    kept_length -= len(SOURCES.pop(filename, ""))
    if "linecache" in sys.modules:
        sys.modules["linecache"].cache.pop(filename, None)


def show_lines(*filenames):
    """Adds the guest's sources to `linecache`, so that tracebacks can quote them."""
    import linecache

    for filename in filenames:
        linecache.cache[filename] = line_entry(filename)


def line_entry(filename):
    text = text_of(SOURCES[filename])
    # Split as the compiler does. Every line ends with a newline, because the position of carets depends on
    # it.
    lines = [line if line.endswith("\n") else line + "\n" for line in StringIO(text, None)]
    return len(text), None, lines, filename


def cut(text, limit):
    text = clean(text)
    return text if len(text) <= limit else text[: limit // 2] + " ... " + text[-limit // 2 :]


def clean(text):
    # Lone surrogates cannot be encoded as UTF-8.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def class_name(error):
    return cut(NAME_OF(type(error)), MAX_NAME)

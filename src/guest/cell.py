"""Compiles and runs a cell."""

import _ast
import sys

# Characters. Even where each takes six bytes of JSON this is below the supervisor's bounds, which
# end the session when they are exceeded.
MAX_TEXT = 32 * 1024
# `CO_FUTURE_*` of CPython's Include/cpython/code.h, the same since 3.8.
FUTURE_FLAGS = 0x1FE0000
# What the interpreter calls a program that is no file.
ARGV0 = {"<string>": "-c", "<stdin>": "-"}
# Text of what was run, by the name that tracebacks have for it, and the most that is kept of it.
SOURCES = {}
MAX_SOURCES = 16 << 20
kept_characters = 0


def execute(source, filename, namespace):
    tree = parse(source, filename)
    last = pop_last_expression(tree)
    body, last = compile_both(tree, last, filename)
    keep_source(filename, source.decode("utf-8", "replace"))
    if body is not None:
        exec(body, namespace)
    return None if last is None else eval(last, namespace)


def parse(source, filename, flags=0):
    # Not `ast.parse`: its frame would stand in the traceback of a syntax error.
    return compile(source, filename, "exec", flags | _ast.PyCF_ONLY_AST, dont_inherit=True)


def pop_last_expression(tree):
    if tree.body and isinstance(tree.body[-1], _ast.Expr):
        return tree.body.pop().value
    return None


def compile_both(tree, last, filename, flags=0):
    """The code of all but the last expression, and of that one; `None` for what there is not."""
    body = compile(tree, filename, "exec", flags, dont_inherit=True) if tree.body else None
    if last is None:
        return body, None
    if body is not None:
        # What the statements before it imported from `__future__` holds for it too.
        flags |= body.co_flags & FUTURE_FLAGS
    return body, compile(_ast.Expression(last), filename, "eval", flags, dont_inherit=True)


def set_argv(filename, argv):
    sys.argv = [ARGV0.get(filename, filename), *argv]


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


class Lines:
    """Quotes a script's lines to whoever asks as `linecache` does: there is no file to read."""

    def __init__(self, source):
        self.source = source

    def get_source(self, name):
        return self.source.decode("utf-8", "replace")


def keep_source(filename, text):
    """Remembers what tracebacks will quote; the oldest cells of a long session are forgotten."""
    global kept_characters
    kept_characters += len(text) - len(SOURCES.pop(filename, ""))
    SOURCES[filename] = text
    while kept_characters > MAX_SOURCES and len(SOURCES) > 1:
        kept_characters -= len(SOURCES.pop(next(iter(SOURCES))))
    # Not imported: one that is there may be the guest's own, or `None`.
    linecache = sys.modules.get("linecache")
    if linecache is not None:
        try:
            linecache.cache[filename] = line_entry(filename)
        except Exception:
            # The guest made something else of it.
            pass


def forget_source(filename):
    global kept_characters
    kept_characters -= len(SOURCES.pop(filename, ""))
    if "linecache" in sys.modules:
        sys.modules["linecache"].cache.pop(filename, None)


def show_lines(*filenames):
    """Lets tracebacks quote the guest's lines, which are in no file."""
    import linecache

    for filename in filenames:
        linecache.cache[filename] = line_entry(filename)


def line_entry(filename):
    text = SOURCES[filename]
    # Every line ends with one, as in a file that is read: carets are counted from there.
    lines = [line + "\n" for line in text.splitlines()]
    return len(text), None, lines, filename


def cut(text, limit):
    text = clean(text)
    return text if len(text) <= limit else text[: limit // 2] + " ... " + text[-limit // 2 :]


def clean(text):
    # Lone surrogates have no UTF-8.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")

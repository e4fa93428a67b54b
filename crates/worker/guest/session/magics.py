"""What cells have from notebooks and no Python has: `%time`, `!ls`, `name?`. Such a line gets its effect where
the sandbox has one, and otherwise a sentence that says what to do instead."""

import builtins
import os
import re
import sys

NAME = "__sandfork_magic__"
# `value = !ls`, `!ls`, `%time f()`, `?name` and `name?`. Each is on one line.
LINE = re.compile(r"(\s*)(?:([\w.]+(?:\s*,\s*[\w.]+)*)\s*=\s*)?(!!?|%)\s*(\S.*)")
HELP = re.compile(r"(\s*)(?:\?{1,2}\s*([\w.]+)|([\w.]+)\s*\?{1,2})\s*;?\s*")
CELL = re.compile(r"%%(\w+)[ \t]*([^\n]*)\n?(.*)", re.DOTALL)
# Each replaced line is a compilation more.
MOST_LINES = 200
INSTALL = re.compile(r"(?:(?:python3?|\S*/python3?)\s+-m\s+)?(?:uv\s+)?(pip3?|conda|mamba|apt|apt-get)\b(.*)")
# What the sandbox does anyway, or what has no meaning in it.
SILENT = ("matplotlib", "config", "autoreload", "load_ext", "reload_ext", "precision", "pylab", "colors", "xmode")
FORMS = {"html": "text/html", "markdown": "text/markdown", "latex": "text/latex", "svg": "image/svg+xml"}
SHELLS = ("bash", "sh", "script")
BASH = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
# `$name` and `$name.attribute` outside single quotes. `$$name` is the shell's own `$name`.
DOLLAR = re.compile(r"(\$\$?)([^\W\d]\w*)((?:\.[^\W\d]\w*)*)(?=(?:[^']*'[^']*')*[^']*$)")
# Their code is no text with variables in it.
UNEXPANDED = ("time", "timeit")


class Magics:
    def __init__(self, displays):
        self.displays = displays
        self.namespace = {}
        self.timer = None
        self.capture = None

    def translate(self, source, namespace, compiles):
        """The cell as Python, or `None` if it is not one with such lines. `compiles` raises the
        `SyntaxError` of a text."""
        self.namespace, self.timer, self.capture = namespace, None, None
        setattr(builtins, NAME, self.run)
        found = CELL.match(source.lstrip())
        if found is not None:
            source = self.cell(*found.groups())
        lines = source.split("\n")
        for done in range(MOST_LINES):
            try:
                compiles("\n".join(lines))
                return "\n".join(lines)
            except SyntaxError as error:
                place = (error.lineno or 0) - 1
                line = python_of(lines[place]) if 0 <= place < len(lines) else None
                if line is None and done:
                    # The mistake is not the line that made this no Python.
                    raise error from None
                if line is None:
                    return None
                lines[place] = line
        return None

    def cell(self, name, rest, body):
        """The Python of a cell that begins with `%%`."""
        if name == "time":
            self.timer = times()
            return "\n%s" % body
        if name == "capture":
            # It begins with the cell, and not before a mistake in its code is reported.
            return "%s\n%s" % (call("%%", name, rest), body)
        return call("%%", name, rest, body)

    def finish(self):
        """Ends a cell that began with `%%capture`, or prints the time of one that began with `%%time`."""
        capture, self.capture = self.capture, None
        if capture is not None:
            capture.end()
        timer, self.timer = self.timer, None
        if timer is not None:
            print_times(timer)

    def run(self, kind, name, rest="", body=None):
        if kind == "?":
            return describe(name, self.namespace)
        if kind in ("!", "!!"):
            return shell(expand(rest, self.namespace), kind == "!!")
        if kind == "%" and name not in UNEXPANDED:
            rest = expand(rest, self.namespace)
        handler = getattr(self, "%s_%s" % ("line" if kind == "%" else "cell", name), None)
        if handler is not None:
            return handler(rest) if kind == "%" else handler(rest, body)
        if name in SILENT:
            return None
        if kind == "%%" and name in FORMS:
            return self.displays.show({FORMS[name]: body})
        if kind == "%%" and name in SHELLS:
            return shell(body, False, "sh" if name == "sh" else "bash")
        if name in ("pip", "conda", "mamba", "uv"):
            return install("%s %s" % (name, rest))
        say("%s%s is a command of IPython that a sandbox does not have: write it in Python" % (kind, name))

    def line_time(self, code):
        began = times()
        try:
            return self.value(code)
        finally:
            print_times(began)

    def line_timeit(self, code):
        self.cell_timeit("", code)

    def cell_timeit(self, setup, code):
        from timeit import Timer

        setup, code = (re.sub(r"^(?:-\w+\s*\d*(?:\s+|$))*", "", text) for text in (setup, code))
        number, taken = Timer(code, setup or "pass", globals=self.namespace).autorange()
        print("%s per loop (%d loops)" % (seconds(taken / number), number))

    def value(self, code):
        """The value of a line of code, which may be a statement."""
        try:
            compiled = compile(code, "<magic>", "eval")
        except SyntaxError:
            exec(compile(code, "<magic>", "exec"), self.namespace)
            return None
        return eval(compiled, self.namespace)

    def line_cd(self, path):
        os.chdir(os.path.expanduser(path.strip().strip("'\"") or "~"))
        print(os.getcwd())

    def line_pwd(self, rest):
        return os.getcwd()

    def line_ls(self, rest):
        for name in sorted(os.listdir(rest.strip() or ".")):
            print(name)

    def line_cat(self, path):
        with open(path.strip()) as file:
            print(file.read(), end="")

    def line_env(self, rest):
        name, equal, value = rest.strip().partition("=")
        if equal:
            os.environ[name.strip()] = value.strip()
        return os.environ.get(name) if name and not equal else dict(os.environ) if not name else None

    line_set_env = line_env

    def line_who(self, rest):
        print("  ".join(name for name in self.namespace if not name.startswith("_") and name != "get_ipython"))

    line_whos = line_who

    def line_run(self, rest):
        from runpy import run_path
        from shlex import split

        path, *argv = split(rest)
        before, sys.argv = sys.argv, [path, *argv]
        try:
            names = run_path(path, {"get_ipython": lambda: InteractiveShell(self, self.namespace)}, "__main__")
        finally:
            sys.argv = before
        del names["get_ipython"]
        self.namespace.update((name, names[name]) for name in names if not name.startswith("__"))

    def cell_capture(self, rest, body):
        names = [word for word in rest.split() if not word.startswith("-")]
        self.capture = Capture(self.namespace, names[0] if names else None)
        if body is not None:
            try:
                self.value(body)
            finally:
                self.finish()

    def cell_writefile(self, rest, body):
        *options, path = rest.split()
        with open(path, "a" if "-a" in options else "w") as file:
            file.write(body)
        print("Writing %s" % path)


class Capture:
    """What a cell that begins with `%%capture` prints. It is the value of the name after that."""

    def __init__(self, namespace, name):
        from io import StringIO

        self.streams = sys.stdout, sys.stderr
        self.printed = sys.stdout, sys.stderr = StringIO(), StringIO()
        if name is not None:
            namespace[name] = self

    def end(self):
        sys.stdout, sys.stderr = self.streams

    @property
    def stdout(self):
        return self.printed[0].getvalue()

    @property
    def stderr(self):
        return self.printed[1].getvalue()

    def __str__(self):
        return self.stdout

    def __call__(self):
        """Prints it after all."""
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)

    show = __call__


class InteractiveShell:
    """What `get_ipython()` returns. Code that was converted from a notebook calls it for magics and programs."""

    def __init__(self, magics, user_ns):
        self.magics = magics
        self.user_ns = user_ns
        magics.namespace = user_ns

    def run_line_magic(self, magic_name, line):
        return self.magics.run("%", magic_name, line)

    def run_cell_magic(self, magic_name, line, cell):
        return self.magics.run("%%", magic_name, line, cell)

    def magic(self, line):
        name, _, rest = line.lstrip("%").partition(" ")
        return self.run_line_magic(name, rest)

    def system(self, cmd):
        self.magics.run("!", "", cmd)

    def getoutput(self, cmd):
        return self.magics.run("!!", "", cmd)

    def check_complete(self, code):
        from .prompt import check_complete

        return check_complete(code)

    def statement_ends(self, code):
        from .prompt import statement_ends

        return statement_ends(code, self.magics)

    def __getattr__(self, name):
        raise AttributeError(
            "a sandbox has no IPython: its get_ipython() has run_line_magic, run_cell_magic, system, getoutput, "
            "check_complete and user_ns, and not %s" % name
        )


def python_of(line):
    """A line as Python, or `None` if it is none of a notebook's."""
    found = HELP.fullmatch(line)
    if found is not None and "?" in line:
        return found[1] + call("?", found[2] or found[3])
    found = LINE.fullmatch(line)
    if found is None:
        return None
    indent, target, kind, rest = found.groups()
    if kind == "%":
        name, _, rest = rest.partition(" ")
        if not name.isidentifier():
            return None
        made = call("%", name, rest)
    else:
        made = call("!!" if target else kind, "", rest)
    return indent + ("%s = %s" % (target, made) if target else made)


def call(*arguments):
    return "%s(%s)" % (NAME, ", ".join(map(repr, arguments)))


def say(sentence):
    # On standard output, as what such a line prints: an agent shows its model no other stream.
    print(sentence)


def install(command):
    """Tells which packages are there, and what to do about the others."""
    found = INSTALL.fullmatch(command.strip())
    words = found[2].split() if found else []
    if words[:1] != ["install"]:
        say("`%s` does not run in a sandbox: code cannot change its packages" % command.strip())
        return
    from importlib.metadata import PackageNotFoundError, version

    missing = []
    for word in words[1:]:
        name = re.match(r"[A-Za-z0-9._-]*", word)[0]
        if word.startswith("-") or not name:
            continue
        try:
            print("Requirement already satisfied: %s (%s)" % (name, version(name)))
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        say(
            "%s cannot be installed here: code cannot change the packages of its sandbox, which has those of %s. "
            "Name others as `packages` under [python] in the policy" % (", ".join(missing), sys.prefix)
        )


def expand(command, namespace):
    """A command with the values of `$name` and `{expression}`. What is no expression is left to the shell, and so
    is a name that the session does not have."""
    from string import Formatter

    formatter, parts = Formatter(), []
    try:
        for text, expression, rest, conversion in formatter.parse(command):
            parts.append(DOLLAR.sub(lambda found: dollar(found, namespace), text))
            if expression is not None:
                value = eval("%s:%s" % (expression, rest) if rest else expression, namespace)
                parts.append(format(formatter.convert_field(value, conversion)))
    except Exception:
        # Braces of the shell.
        return DOLLAR.sub(lambda found: dollar(found, namespace), command)
    return "".join(parts)


def dollar(found, namespace):
    sign, name, attributes = found.groups()
    if sign == "$$":
        return "$%s%s" % (name, attributes)
    if name not in namespace:
        return found[0]
    value = namespace[name]
    for attribute in attributes.split(".")[1:]:
        if not hasattr(value, attribute):
            return "%s%s" % (namespace[name], attributes)
        value = getattr(value, attribute)
    return str(value)


def shell(command, listed, program="bash"):
    """Runs a command of the shell, where the policy shows one. Returns its lines with `listed`."""
    found = INSTALL.fullmatch(command.strip())
    if found is not None:
        return install(found[1] + found[2])
    from subprocess import PIPE, STDOUT, run

    program = next((path for path in BASH if program == "bash" and os.path.exists(path)), "/bin/sh")
    sys.stdout.flush()
    try:
        # Both streams are one, as in Jupyter.
        ended = run([program, "-c", command], stdout=PIPE if listed else None, stderr=STDOUT if listed else 1)
    except OSError as error:
        say("`!%s` does not run: this sandbox runs no programs (%s): write it in Python" % (command, error.strerror))
        return [] if listed else None
    if ended.returncode:
        say("`!%s` ended with exit code %d" % (command.split("\n")[0], ended.returncode))
    return ended.stdout.decode("utf-8", "replace").splitlines() if listed else None


def describe(name, namespace):
    """Prints what `name?` prints: the signature and the documentation."""
    import inspect

    first, *rest = name.split(".")
    try:
        value = namespace[first] if first in namespace else getattr(builtins, first)
        for part in rest:
            value = getattr(value, part)
    except AttributeError:
        say("Object `%s` not found." % name)
        return
    try:
        print("Signature: %s%s" % (name, inspect.signature(value)))
    except (TypeError, ValueError):
        print("Type: %s" % type(value).__name__)
    print(inspect.getdoc(value) or "<no docstring>")


def times():
    from time import perf_counter

    used = os.times()
    return used.user + used.children_user, used.system + used.children_system, perf_counter()


def print_times(began):
    user, system, wall = (now - then for now, then in zip(times(), began))
    total = user + system
    print("CPU times: user %s, sys: %s, total: %s" % tuple(map(seconds, (user, system, total))))
    print("Wall time: %s" % seconds(wall))


def seconds(count):
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if count >= size:
            return "%.3g %s" % (count / size, unit)
    return "%.3g ns" % (count * 1e9)

"""Implements notebook syntax in cells: `%time`, `!ls`, `name?`. If the sandbox cannot do what a line
requests, a sentence says what to do instead."""

import builtins
import os
import re
import sys

from .shell import expand, manage, say, script, shell
from .timing import print_times, timeit, times

NAME = "__sandfork_magic__"
# `value = !ls`, `!ls`, `%time f()`, `?name` and `name?`, each on a single line.
LINE = re.compile(r"(\s*)(?:([\w.]+(?:\s*,\s*[\w.]+)*)\s*=\s*)?(!!?|%)\s*(\S.*)")
HELP = re.compile(r"(\s*)(?:\?{1,2}\s*([\w.]+)|([\w.]+)\s*\?{1,2})\s*;?\s*")
CELL = re.compile(r"%%(\w+)[ \t]*([^\n]*)\n?(.*)", re.DOTALL)
# Each replaced line takes another compilation.
MAX_LINES = 200
# Magics for what the sandbox does anyway.
SILENT = ("matplotlib",)
WITHOUT_EFFECT = ("config", "autoreload", "load_ext", "reload_ext", "precision", "colors", "xmode")
PYLAB = """import numpy, matplotlib
from matplotlib import mlab, pylab, pyplot
np, plt = numpy, pyplot
from pylab import *
from numpy import *
"""
FORMS = {"html": "text/html", "markdown": "text/markdown", "latex": "text/latex", "svg": "image/svg+xml"}
# Programs that IPython runs without the `!` too.
PROGRAMS = ("cp", "mkdir", "mv", "rm", "rmdir")
# Magics whose argument is code, in which `$name` and `{name}` are not replaced.
UNEXPANDED = ("time", "timeit")


class Magics:
    def __init__(self, displays):
        self.displays = displays
        self.namespace = {}
        self.timer = None
        self.capture = None

    def translate(self, source, namespace, compiles):
        """Returns the cell as Python, or `None` if it has no notebook syntax. `compiles` raises the
        `SyntaxError` of a text."""
        self.namespace, self.timer, self.capture = namespace, None, None
        setattr(builtins, NAME, self.run)
        found = CELL.match(source.lstrip())
        if found is not None:
            source = self.cell(*found.groups())
        lines = source.split("\n")
        for done in range(MAX_LINES):
            try:
                compiles("\n".join(lines))
                return "\n".join(lines)
            except SyntaxError as error:
                place = (error.lineno or 0) - 1
                text, end = joined(lines, place)
                line = python_of(text)
                if line is None and done:
                    # The error is not in the notebook line.
                    raise error from None
                if line is None:
                    return None
                lines[place:end] = [line] + [""] * (end - place - 1)
        return None

    def cell(self, name, rest, body):
        """Returns the Python of a cell that begins with `%%`."""
        if name == "time":
            self.timer = times()
            return "\n%s" % body
        if name == "capture":
            # The capture begins with the cell, so that a syntax error in its code is still reported.
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
        if name not in UNEXPANDED:
            rest = expand(rest, self.namespace)
        handler = getattr(self, "%s_%s" % ("line" if kind == "%" else "cell", name), None)
        if handler is not None:
            return handler(rest) if kind == "%" else handler(rest, body)
        if name in SILENT:
            return None
        if kind == "%" and name in PROGRAMS:
            return shell("%s %s" % (name, rest), False)
        if kind == "%%" and name in FORMS:
            return self.displays.show({FORMS[name]: body})
        if kind == "%" and name in WITHOUT_EFFECT:
            return say("%%%s %s has no effect in a sandbox" % (name, rest))
        if name in ("pip", "conda", "mamba", "uv"):
            return manage("%s %s" % (name, rest))
        say("%s%s is a command of IPython that a sandbox does not have: write it in Python" % (kind, name))

    def line_time(self, code):
        began = times()
        try:
            return self.value(code)
        finally:
            print_times(began)

    def line_timeit(self, code):
        return timeit(code, None, self.namespace)

    def cell_timeit(self, rest, body):
        return timeit(rest, body, self.namespace)

    def value(self, code):
        """Returns the value of a line of code, which may be a statement."""
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
        if rest.strip() and not os.path.isdir(rest.strip()):
            shell("ls " + rest, False)
            return
        for name in sorted(os.listdir(rest.strip() or ".")):
            print(name)

    def line_cat(self, path):
        with open(path.strip()) as file:
            print(file.read(), end="")

    def line_sx(self, rest):
        return shell(rest, True)

    line_system = line_sx

    def line_env(self, rest):
        name, equal, value = rest.strip().partition("=" if "=" in rest else " ")
        name = name.strip()
        if equal:
            os.environ[name] = value.strip()
            print("env: %s=%s" % (name, value.strip()))
        elif not name:
            return dict(os.environ)
        elif name in os.environ:
            return os.environ[name]
        else:
            say("The environment has no variable %s" % name)

    line_set_env = line_env

    def line_who(self, rest):
        print("  ".join(name for name in self.namespace if not name.startswith("_") and name != "get_ipython"))

    line_whos = line_who

    def line_run(self, rest):
        from shlex import split

        words = split(rest)
        shares = words[:1] == ["-i"]
        path, *argv = words[1:] if shares else words or ["-"]
        if path.startswith("-"):
            say("%%run %s does not work in a sandbox: it has -i, and takes the name of a file" % path)
            return
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        before = sys.argv, sys.modules["__main__"]
        module = type(sys)("__main__")
        vars(module).update(get_ipython=self.get_ipython, __file__=path)
        sys.argv = [path, *argv]
        if not shares:
            sys.modules["__main__"] = module
        try:
            exec(code, self.namespace if shares else vars(module))
        except SystemExit as end:
            # This ends the script, not the cell.
            if end.code:
                say("%s ended with SystemExit: %s" % (path, end.code))
        finally:
            sys.argv, sys.modules["__main__"] = before
            names = [name for name in vars(module) if not name.startswith("__") and name != "get_ipython"]
            self.namespace.update((name, vars(module)[name]) for name in names)

    def get_ipython(self):
        return InteractiveShell(self, self.namespace)

    def line_pylab(self, rest):
        exec(PYLAB, self.namespace)
        print("Populating the interactive namespace from numpy and matplotlib")

    def cell_capture(self, rest, body):
        names = [word for word in rest.split() if not word.startswith("-")]
        self.capture = Capture(self.namespace, names[0] if names else None)
        if body is not None:
            try:
                self.value(body)
            finally:
                self.finish()

    def cell_writefile(self, rest, body):
        from shlex import split

        *options, path = split(rest)
        with open(path, "a" if {"-a", "--append"} & set(options) else "w") as file:
            file.write(body)
        print("Writing %s" % path)

    cell_file = cell_writefile

    def cell_script(self, rest, body):
        script("script", rest, body, self.namespace)

    def cell_python(self, rest, body):
        script("script", rest + " python3", body, self.namespace)

    cell_python3 = cell_python

    def cell_bash(self, rest, body):
        script("bash", rest, body, self.namespace)

    def cell_sh(self, rest, body):
        script("sh", rest, body, self.namespace)


class Capture:
    """The output of a cell that begins with `%%capture`. It is assigned to the name after `%%capture`."""

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
        """Prints the captured output."""
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)

    show = __call__


class InteractiveShell:
    """The result of `get_ipython()`. Code that was converted from a notebook calls it for magics and
    programs."""

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


def joined(lines, place):
    """Returns the line at `place`, joined with its continuation lines after a backslash, and the place after
    them."""
    text, end = lines[place] if 0 <= place < len(lines) else "", place + 1
    while text.endswith("\\") and end < len(lines) and LINE.fullmatch(text):
        text, end = text[:-1] + lines[end], end + 1
    return text, end


def python_of(line):
    """Returns a line as Python, or `None` if it is not notebook syntax."""
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


def describe(name, namespace):
    """Prints the signature and the documentation, like `name?`."""
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

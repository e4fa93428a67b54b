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


class Magics:
    def __init__(self, displays):
        self.displays = displays
        self.namespace = {}
        self.timer = None

    def translate(self, source, namespace, compiles):
        """The cell as Python, or `None` if it is not one with such lines. `compiles` raises the
        `SyntaxError` of a text."""
        self.namespace, self.timer = namespace, None
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
        if name in ("time", "timeit"):
            self.timer = times()
            return "\n%s" % body
        if name == "capture":
            return "\n%s" % body
        return call("%%", name, rest, body)

    def finish(self):
        """Prints the time of a cell that began with `%%time`."""
        timer, self.timer = self.timer, None
        if timer is not None:
            print_times(timer)

    def run(self, kind, name, rest="", body=None):
        if kind == "?":
            return describe(name, self.namespace)
        if kind in ("!", "!!"):
            return shell(rest, kind == "!!")
        handler = getattr(self, "%s_%s" % ("line" if kind == "%" else "cell", name), None)
        if handler is not None:
            return handler(rest) if kind == "%" else handler(rest, body)
        if name in SILENT:
            return None
        if kind == "%%" and name in FORMS:
            return self.displays.show({FORMS[name]: body})
        if kind == "%%" and name in SHELLS:
            return shell(body, False)
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
        from timeit import Timer

        code = re.sub(r"^(?:-\w+\s*\d*\s+)*", "", code)
        number, taken = Timer(code, globals=self.namespace).autorange()
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
        print("  ".join(name for name in self.namespace if not name.startswith("_")))

    line_whos = line_who

    def line_run(self, rest):
        from runpy import run_path
        from shlex import split

        path, *argv = split(rest)
        before, sys.argv = sys.argv, [path, *argv]
        try:
            names = run_path(path, run_name="__main__")
        finally:
            sys.argv = before
        self.namespace.update((name, names[name]) for name in names if not name.startswith("__"))

    def cell_writefile(self, rest, body):
        *options, path = rest.split()
        with open(path, "a" if "-a" in options else "w") as file:
            file.write(body)
        print("Writing %s" % path)


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
        shell(cmd, False)

    def getoutput(self, cmd):
        return shell(cmd, True)

    def __getattr__(self, name):
        raise AttributeError(
            "a sandbox has no IPython: its get_ipython() has run_line_magic, run_cell_magic, system, getoutput and "
            "user_ns, and not %s" % name
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
    print(sentence, file=sys.stderr)


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


def shell(command, listed):
    """Runs a command of the shell, where the policy shows one. Returns its lines with `listed`."""
    found = INSTALL.fullmatch(command.strip())
    if found is not None:
        return install(found[1] + found[2])
    from subprocess import PIPE, run

    sys.stdout.flush()
    try:
        ended = run(["/bin/sh", "-c", command], stdout=PIPE if listed else None)
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

"""Runs the programs of notebook lines, and answers their package manager commands."""

import os
import re
import sys

INSTALL = re.compile(r"(?:(?:python3?|\S*/python3?)\s+-m\s+)?(?:uv\s+)?(pip3?|conda|mamba|apt|apt-get)\b(.*)")
BASH = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
# `$name` and `$name.attribute` outside single quotes. `$$name` is the shell's own `$name`.
DOLLAR = re.compile(r"(\$\$?)([^\W\d]\w*)((?:\.[^\W\d]\w*)*)(?=(?:[^']*'[^']*')*[^']*$)")


class Lines(list):
    """The output of a program as a list of lines, like IPython's `SList`."""

    l = list = property(list)  # noqa: E741, these are IPython's names
    n = nlstr = property("\n".join)
    s = spstr = property(" ".join)

    @property
    def p(self):
        from pathlib import Path

        return [Path(line) for line in self if os.path.exists(line)]

    paths = p

    def grep(self, pattern, prune=False):
        """Returns the lines that match a regular expression or a function; the other lines with `prune`."""
        matches = pattern if callable(pattern) else re.compile(pattern, re.IGNORECASE).search
        return Lines(line for line in self if bool(matches(line)) != prune)

    def fields(self, *places):
        """Returns these columns of each line, or all of them."""
        rows = [line.split() for line in self]
        if not places:
            return rows
        return Lines(" ".join(row[place] for place in places if -len(row) <= place < len(row)) for row in rows)


def say(sentence):
    # On standard output, like the output of such a line: an agent shows its model no other stream.
    print(sentence)


def shell(command, listed):
    """Runs a shell command, if the policy shows a shell. Returns its output lines with `listed`."""
    found = INSTALL.fullmatch(command.strip())
    if found is not None:
        return manage(found[1] + found[2])
    arguments = [program_of("bash"), "-c", command]
    from subprocess import PIPE, STDOUT

    # Both streams are merged, as in Jupyter.
    ended = run(command, arguments, stdout=PIPE if listed else None, stderr=STDOUT if listed else 1)
    if not listed:
        return None
    return Lines() if ended is None else Lines(ended.stdout.decode("utf-8", "replace").splitlines())


def script(name, rest, body, namespace):
    """Runs a cell with a program: `%%bash`, `%%sh` and `%%script program`."""
    from shlex import split
    from subprocess import PIPE

    words, kept = split(rest), {}
    while words and words[0].startswith("--"):
        option, _, variable = words.pop(0).partition("=")
        if option == "--no-raise-error":
            continue
        if option not in ("--out", "--err") or not (variable or words):
            say("`%%%%%s %s` does not work in a sandbox: it has --out and --err" % (name, option))
            return
        kept[option] = variable or words.pop(0)
    if name == "script" and not words:
        say("`%%script` needs the name of a program")
        return
    arguments = words if name == "script" else [program_of(name), *words]
    # The programs that a shell starts share its standard input, and would read the body from it. A shell
    # without further arguments therefore gets the body by `-c`.
    takes_input = name == "script" or bool(words)
    if not takes_input:
        arguments += ["-c", body]
    stdout = PIPE if "--out" in kept else None
    stderr = PIPE if "--err" in kept else 1 if stdout is None else None
    ended = run(" ".join(arguments[:1]), arguments, body.encode() if takes_input else None, stdout, stderr)
    for option, stream in (("--out", "stdout"), ("--err", "stderr")):
        if option in kept:
            printed = b"" if ended is None else getattr(ended, stream)
            namespace[kept[option]] = printed.decode("utf-8", "replace")


def program_of(name):
    return next((path for path in BASH if name == "bash" and os.path.exists(path)), "/bin/sh")


def run(command, arguments, data=None, stdout=None, stderr=None):
    """Runs a program to its end, and reports failure. Returns `None` if it cannot be run."""
    from subprocess import run

    sys.stdout.flush()
    try:
        ended = run(arguments, input=data, stdout=stdout, stderr=stderr)
    except OSError as error:
        why = "this sandbox runs no such program (%s): write it in Python" % error.strerror
        say("`!%s` does not run: %s" % (command, why))
        return None
    if ended.returncode:
        say("`!%s` ended with exit code %d" % (command.split("\n")[0], ended.returncode))
    return ended


def manage(command):
    """Answers a package manager command: shows installed packages, or says how to add others."""
    found = INSTALL.fullmatch(command.strip())
    words = found[2].split() if found else []
    if words[:1] == ["install"]:
        install(words[1:])
    elif found is None or not found[1].startswith("pip") or not show_packages(words):
        say("`%s` does not run in a sandbox: code cannot change its packages" % command.strip())


def show_packages(words):
    """Implements `pip list`, `freeze`, `show` and `--version`. Returns whether the command is one of them."""
    from importlib.metadata import PackageNotFoundError, distribution, distributions

    names = [word for word in words[1:] if not word.startswith("-")]
    if words[:1] in (["list"], ["freeze"]):
        between = "==" if words[0] == "freeze" else " "
        found = {str(each.metadata["Name"]): each.version for each in distributions()}
        for name in sorted(found, key=str.lower):
            print(name + between + found[name])
        return True
    if words[:1] in (["--version"], ["-V"]):
        names = ["pip"]
    elif words[:1] != ["show"]:
        return False
    for name in names:
        try:
            found = distribution(name)
        except PackageNotFoundError:
            say("Package not found: %s" % name)
            continue
        about = (found.metadata.get("Summary", ""), found.locate_file(""), ", ".join(found.requires or ()))
        print("Name: %s\nVersion: %s\nSummary: %s\nLocation: %s\nRequires: %s" % (name, found.version, *about))
    return True


def install(words):
    """Prints which packages are installed, and how to add the others."""
    from importlib.metadata import PackageNotFoundError, version

    missing = []
    for word in words:
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
    """Replaces `$name` and `{expression}` in a command by their values. Leaves names that the session does
    not have, and braces that are not expressions, to the shell."""
    from string import Formatter

    formatter, parts = Formatter(), []
    try:
        for text, expression, rest, conversion in formatter.parse(command):
            parts.append(DOLLAR.sub(lambda found: dollar(found, namespace), text))
            if expression is not None:
                value = eval("%s:%s" % (expression, rest) if rest else expression, namespace)
                parts.append(format(formatter.convert_field(value, conversion)))
    except Exception:
        # These are braces of the shell.
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

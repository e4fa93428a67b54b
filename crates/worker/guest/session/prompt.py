"""Finds the end of statements, both those that a person types and those of a script, by means of the
parser."""

from codeop import compile_command

from ..cell import parse
from .magics import python_of

FILENAME = "<prompt>"


def check_complete(text):
    """Returns whether a text is "complete", "incomplete" or "invalid", and the indentation of the line after
    an incomplete text. Compatible with IPython's method of this name."""
    is_ended = not text.split("\n")[-1].strip()
    if text.startswith("%%"):
        return "complete" if is_ended else "incomplete", ""
    status = status_of(text, is_ended)
    if status == "invalid":
        text = with_magic(text)
        status = status_of(text, is_ended)
    return status, indentation(text.rstrip()) if status == "incomplete" else ""


def status_of(text, is_ended):
    try:
        statements = parse(text, FILENAME).body
    except SyntaxError:
        return "incomplete" if is_begun(text) else "invalid"
    # As at Python's prompt, an empty line ends a block: before it, an `else` may follow.
    is_block = bool(statements) and (hasattr(statements[-1], "body") or hasattr(statements[-1], "cases"))
    return "incomplete" if is_block and not is_ended else "complete"


def is_begun(text):
    """Returns whether further lines can make this text valid Python."""
    try:
        return compile_command(text, FILENAME, "exec") is None
    except SyntaxError:
        return False


def indentation(text):
    last = text.split("\n")[-1]
    spaces = last[: len(last) - len(last.lstrip())]
    try:
        parse("%s\n%spass" % (text, spaces), FILENAME)
    except IndentationError:
        # The last line begins a block.
        return spaces + "    "
    except SyntaxError:
        pass
    return spaces


def statement_ends(script, magics):
    """Returns the number of lines up to the end of each statement except the last. A script that is not valid
    Python counts as one statement."""
    if script.lstrip().startswith("%%"):
        # The whole script is a cell magic.
        return []
    for translate in (str, with_magic, lambda script: with_found_magic(script, magics)):
        try:
            text = translate(script).encode()
            statements = parse(text, FILENAME).body
        except SyntaxError:
            continue
        lines = text.split(b"\n")
        pairs = zip(statements, statements[1:])
        return [before.end_lineno for before, after in pairs if are_apart(before, after, lines)]
    return []


def are_apart(before, after, lines):
    """Returns whether the text can be split at a line end between two statements."""
    rest = lines[before.end_lineno - 1][before.end_col_offset :].partition(b"#")[0]
    return after.lineno > before.end_lineno and not rest.rstrip().endswith(b"\\")


def with_magic(text):
    """Replaces notebook lines by Python. Lines inside strings or brackets may be mistaken for notebook
    lines."""
    return "\n".join(python_of(line) or line for line in text.split("\n"))


def with_found_magic(script, magics):
    """Like `with_magic`, but replaces only lines that the parser rejects. Each takes another compilation."""
    return magics.translate(script, magics.namespace, lambda text: parse(text, FILENAME)) or script

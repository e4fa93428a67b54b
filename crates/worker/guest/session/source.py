"""Reads a session's cell: Python, with a fence of Markdown around it or the lines of a notebook in it."""

from ..cell import parse, text_of

# The lines around code in Markdown, which models write around a cell.
FENCES = ("```", "```python", "```python3", "```py")


def read(source, filename, namespace, displays):
    """The cell's tree, and its magic lines if it has any."""
    try:
        return parse(source, filename), None
    except SyntaxError:
        # Only now: what is Python stays what it is.
        text = text_of(source)
        inside = without_fence(text)
        magics, translated = translate(inside or text, filename, namespace, displays)
        if translated is None and inside is None:
            raise
    return parse(translated or inside, filename), magics


def ends_quietly(tree, source):
    """Whether a semicolon follows the last statement, as in notebooks to show no value."""
    source = source if isinstance(source, bytes) else source.encode("utf-8", "replace")
    if b";" not in source or not tree.body:
        return False
    last = tree.body[-1]
    # Only these lines of text end where Python's do. A line of magic may have become another one.
    line = b"".join(source.splitlines()[last.end_lineno - 1 : last.end_lineno])
    return line[last.end_col_offset :].lstrip().startswith(b";")


def translate(text, filename, namespace, displays):
    if not any(sign in text for sign in "%!?"):
        return None, None
    from .magics import Magics

    magics = Magics(displays)
    return magics, magics.translate(text, namespace, lambda text: parse(text, filename))


def without_fence(text):
    """A cell without the fence around all of it, on the same lines, or `None` if it has none."""
    lines = text.split("\n")
    filled = [place for place, line in enumerate(lines) if line.strip()]
    fences = [place for place in filled if lines[place].lstrip().startswith("```")]
    if len(fences) != 2 or fences != [filled[0], filled[-1]]:
        return None
    first, last = (lines[place].strip().lower() for place in fences)
    if first not in FENCES or last != "```":
        return None
    for place in fences:
        lines[place] = ""
    return "\n".join(lines)

"""Reads a session's cell: Python, possibly with a Markdown fence around it or notebook syntax in it."""

from ..cell import parse, text_of

# The lines around code in Markdown, which models write around a cell.
FENCES = ("```", "```python", "```python3", "```py")


def read(source, filename, namespace, displays):
    """Returns the cell's tree, and its magics if it has any."""
    try:
        return parse(source, filename), None
    except SyntaxError:
        # Only now, so that valid Python is never changed.
        text = text_of(source)
        inside = without_fence(text)
        magics, translated = translate(inside or text, filename, namespace, displays)
        if translated is None and inside is None:
            raise
    return parse(translated or inside, filename), magics


def ends_quietly(tree, source):
    """Returns whether a semicolon follows the last statement, which suppresses the value as in notebooks."""
    source = source if isinstance(source, bytes) else source.encode("utf-8", "replace")
    if b";" not in source or not tree.body:
        return False
    last = tree.body[-1]
    # Only `splitlines` of bytes splits lines as Python does. A magic line may have become another line.
    line = b"".join(source.splitlines()[last.end_lineno - 1 : last.end_lineno])
    return line[last.end_col_offset :].lstrip().startswith(b";")


def translate(text, filename, namespace, displays):
    if not any(sign in text for sign in "%!?"):
        return None, None
    from .magics import Magics

    magics = Magics(displays)
    return magics, magics.translate(text, namespace, lambda text: parse(text, filename))


def without_fence(text):
    """Returns a cell without the fence around all of it, with the same line numbers, or `None` if it has no
    fence."""
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

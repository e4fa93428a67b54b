"""Runs a session's cell, with top-level `await`, a notebook's magic lines and, on request, the value of
its last statement."""

from ..awaiting import EventLoop, needs_loop
from ..cell import compile_both, decoded, keep_source, parse, pop_last_expression, text_of
from .statement import record_last, take_value

# The lines around code in Markdown, which models write around a cell.
FENCES = ("```", "```python", "```python3", "```py")


class Evaluator:
    def __init__(self, displays=None):
        self.loop = EventLoop()
        self.displays = displays

    def run(self, source, filename, namespace, last):
        # Callers of a session send text.
        source = decoded(source, "text")
        tree, magics = self.parse(source, filename, namespace)
        try:
            return self.run_tree(tree, source, filename, namespace, last)
        finally:
            if magics is not None:
                magics.finish()

    def parse(self, source, filename, namespace):
        """The cell's tree, and its magic lines if it has any."""
        try:
            return parse(source, filename), None
        except SyntaxError:
            # Only now: what is Python stays what it is.
            text = text_of(source)
            inside = without_fence(text)
            magics, translated = self.translated(inside or text, filename, namespace)
            if translated is None and inside is None:
                raise
        return parse(translated or inside, filename), magics

    def translated(self, text, filename, namespace):
        if not any(sign in text for sign in "%!?"):
            return None, None
        from .magics import Magics

        magics = Magics(self.displays)
        return magics, magics.translate(text, namespace, lambda text: parse(text, filename))

    def run_tree(self, tree, source, filename, namespace, last):
        expression = pop_last_expression(tree)
        records = last == "statement" and expression is None
        if records:
            record_last(tree)
        body, expression = compile_both(tree, expression, filename)
        keep_source(filename, text_of(source))
        try:
            if needs_loop(body, expression):
                value = self.loop.run((body, expression), namespace)
            else:
                value = None if body is None else self.loop.call(body, namespace)
                if expression is not None:
                    value = self.loop.call(expression, namespace)
        finally:
            recorded = take_value(namespace) if records else None
        return recorded if records else value


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

"""Runs a session's cell, with top-level `await`, a notebook's magic lines and, on request, the value of
its last statement."""

import _ast

from ..cell import compile_both, decoded, keep_source, parse, pop_last_expression, text_of
from .awaiting import EventLoop
from .statement import record_last, take_value

FLAGS = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
# `CO_COROUTINE` of CPython's Include/cpython/code.h.
CO_COROUTINE = 0x80


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
            return parse(source, filename, FLAGS), None
        except SyntaxError:
            # Only now: what is Python stays what it is.
            magics, translated = self.translated(source, filename, namespace)
            if translated is None:
                raise
        return parse(translated, filename, FLAGS), magics

    def translated(self, source, filename, namespace):
        text = text_of(source)
        if not any(sign in text for sign in "%!?"):
            return None, None
        from .magics import Magics

        magics = Magics(self.displays)
        return magics, magics.translate(text, namespace, lambda text: parse(text, filename, FLAGS))

    def run_tree(self, tree, source, filename, namespace, last):
        expression = pop_last_expression(tree)
        records = last == "statement" and expression is None
        if records:
            record_last(tree)
        body, expression = compile_both(tree, expression, filename, FLAGS)
        keep_source(filename, text_of(source))
        try:
            if body is not None:
                self.execute(body, namespace)
            if expression is not None:
                return self.execute(expression, namespace)
        finally:
            value = take_value(namespace) if records else None
        return value

    def execute(self, code, namespace):
        value = eval(code, namespace)
        return self.loop.run(value) if code.co_flags & CO_COROUTINE else value

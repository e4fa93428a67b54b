"""Runs a session's cell, with top-level `await` and, on request, the value of its last statement."""

import _ast

from ..cell import compile_both, decoded, keep_source, parse, pop_last_expression, text_of
from .awaiting import EventLoop
from .statement import record_last, take_value

FLAGS = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
# `CO_COROUTINE` of CPython's Include/cpython/code.h.
CO_COROUTINE = 0x80


class Evaluator:
    def __init__(self):
        self.loop = EventLoop()

    def run(self, source, filename, namespace, last):
        # Callers of a session send text.
        source = decoded(source, "text")
        tree = parse(source, filename, FLAGS)
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

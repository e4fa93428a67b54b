"""What is read off code before it runs, and after it failed. Parses; never runs or imports anything."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

# Far more than a model writes in one step. Beyond it nothing is parsed here: a parser's time and
# stack are the host's.
MAX_PARSED = 256 * 1024

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def bound_tool(code: str, tools: Collection[str]) -> str | None:
    """A tool whose name this code would bind to something else, so that later steps had no such tool."""
    tree = _parsed(code)
    names = _module_names(tree) if tree is not None else iter(())
    return next((name for name in names if name in tools), None)


def failing_source(code: str, line: int) -> str:
    """What stands at the line that an error comes from: its statement, or the head of its block."""
    tree = _parsed(code)
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)] if tree else []
    # A block counts by its head only: an error within it is one of its statements'.
    there = [
        node
        for node in statements
        if node.lineno == line
        or (node.lineno < line <= (node.end_lineno or node.lineno) and not _is_block(node))
    ]
    if len(there) == 1 and not _is_block(there[0]):
        return ast.get_source_segment(code, there[0]) or ""
    lines = code.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _is_block(statement: ast.stmt) -> bool:
    return hasattr(statement, "body") or hasattr(statement, "cases")


def _parsed(code: str) -> ast.Module | None:
    if len(code) > MAX_PARSED:
        return None
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # What is wrong with it is for the interpreter that runs it to say.
        return None


def _module_names(tree: ast.Module) -> Iterator[str]:
    """Names that code binds or deletes in its module. Those of a function or a comprehension are its own."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        yield from _bound_by(node)
        if isinstance(node, _SCOPES):
            nodes += [inner for inner in ast.walk(node) if isinstance(inner, ast.Global)]
        elif isinstance(node, _COMPREHENSIONS):
            nodes += [inner.target for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)]
        elif not isinstance(node, ast.Lambda):
            nodes += ast.iter_child_nodes(node)


def _bound_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, _SCOPES):
        return [node.name]
    if isinstance(node, ast.Global):
        return node.names
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ExceptHandler) and node.name is not None:
        return [node.name]
    return []

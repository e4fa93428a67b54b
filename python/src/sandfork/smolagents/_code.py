"""Analyses code before it runs and after it failed. It only parses, and never runs or imports anything."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

# Far more than a model writes in one step. Longer code is not parsed, because the parser uses the host's
# time and stack.
MAX_PARSED = 256 * 1024

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def bound_tool(code: str, tools: Collection[str]) -> str | None:
    """Returns a tool whose name this code would rebind, so that later steps could not call the tool; or
    `None`."""
    tree = _parsed(code)
    names = _module_names(tree) if tree is not None else iter(())
    return next((name for name in names if name in tools), None)


def failing_source(code: str, line: int) -> str:
    """Returns the source at the line of an error: its statement, or the head of its block."""
    tree = _parsed(code)
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)] if tree else []
    # Only the head of a block counts: an error inside it belongs to one of its statements.
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
        # The interpreter that runs the code reports its syntax errors.
        return None


def _module_names(tree: ast.Module) -> Iterator[str]:
    """Yields the names that code binds or deletes in its module, without names that are local to a function
    or comprehension."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        yield from _bound_by(node)
        if isinstance(node, _SCOPES):
            nodes += [inner for inner in ast.walk(node) if isinstance(inner, ast.Global)]
            nodes += _evaluated_outside(node)
        elif isinstance(node, ast.Lambda):
            nodes += _defaults(node.args)
        elif isinstance(node, _COMPREHENSIONS):
            nodes += [inner.target for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)]
        else:
            nodes += ast.iter_child_nodes(node)


def _evaluated_outside(scope: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.expr]:
    """Returns the expressions of a definition that are evaluated in the enclosing scope, where `:=` binds."""
    if isinstance(scope, ast.ClassDef):
        return [*scope.decorator_list, *scope.bases, *(keyword.value for keyword in scope.keywords)]
    return [*scope.decorator_list, *_defaults(scope.args)]


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *filter(None, arguments.kw_defaults)]


def _bound_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, _SCOPES):
        return [node.name]
    if isinstance(node, ast.Global):
        return node.names
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return [] if node.name is None else [node.name]
    if isinstance(node, ast.MatchMapping):
        return [] if node.rest is None else [node.rest]
    return []

from __future__ import annotations

import pytest

from sandfork.smolagents._code import MAX_PARSED, bound_tool, failing_source

TOOLS = ("search", "final_answer")


@pytest.mark.parametrize(
    "code",
    [
        "search = 1",
        "x, (search, y) = 1, (2, 3)",
        "search += 1",
        "search: int = 1",
        "for search in range(3): pass",
        "with open('x') as search: pass",
        "import search",
        "import a.b as search",
        "from a import search",
        "def search(query): return query",
        "class search: pass",
        "try: pass\nexcept ValueError as search: pass",
        "if True:\n    search = 1",
        "print(search := 1)",
        "[search := n for n in range(3)]",
        "del search",
        "match 5:\n    case search: pass",
        "match 5:\n    case int() as search: pass",
        "match [5]:\n    case [*search]: pass",
        "match {}:\n    case {**search}: pass",
        "match 5:\n    case Point(x=[1, {'a': search}]) | search: pass",
        "for x in y:\n    pass\nelse:\n    async with z as (search, _): pass",
        "def f(x=(search := 1)): pass",
        "class A(search := object): pass",
        "@(search := id)\ndef f(): pass",
        "lambda *, x=(search := 1): x",
        "def later():\n    global search\n    search = 1",
    ],
)
def test_assignment_to_a_tool_is_detected(code: str) -> None:
    assert bound_tool(code, TOOLS) == "search"


@pytest.mark.parametrize(
    "code",
    [
        "result = search('x')",
        "f = search",
        "thing.search = 1",
        "things['search'] = 1",
        "def f(search):\n    search = 2\n    return search",
        "class A:\n    def search(self): pass",
        "[search for search in range(3)]",
        "lambda search: search",
        "lambda: (search := 1)",
        "match 5:\n    case A.search | A(search=_): pass",
        "call(search=1)",
        "search('",
        "",
    ],
)
def test_code_that_keeps_the_tools_is_accepted(code: str) -> None:
    assert bound_tool(code, TOOLS) is None


@pytest.mark.parametrize("code", ["(" * 5000, "x" + ".a" * 60_000, "-" * 100_000 + "1"])
def test_unparsable_code_is_left_to_the_sandbox(code: str) -> None:
    bound_tool(code, TOOLS)
    assert isinstance(failing_source(code, 1), str)


def test_nothing_huge_is_parsed() -> None:
    assert bound_tool("search = 1\n" + "#" * MAX_PARSED, TOOLS) is None


@pytest.mark.parametrize(
    ("code", "line", "source"),
    [
        ("a = 1\nb = a / 0\n", 2, "b = a / 0"),
        ("f(\n  1,\n  g(2),\n)", 3, "f(\n  1,\n  g(2),\n)"),
        ("for i in range(3):\n    x = 1\n    y = x / 0\n", 3, "y = x / 0"),
        ("for i in 1 / 0:\n    x = 1\n", 1, "for i in 1 / 0:"),
        ("match 1 / 0:\n    case 1: pass\n", 1, "match 1 / 0:"),
        ("x = 1; y = x / 0", 1, "x = 1; y = x / 0"),
        ("if 1 / 0: pass", 1, "if 1 / 0: pass"),
        ("def f():\n    return 1 / 0", 2, "return 1 / 0"),
        ("x = 1", 7, ""),
        ("x = (", 1, "x = ("),
    ],
)
def test_failing_source_is_found(code: str, line: int, source: str) -> None:
    assert failing_source(code, line) == source

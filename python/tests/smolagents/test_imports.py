from __future__ import annotations

import pytest

from sandfork.smolagents import CodeError, NativeExecutor
from sandfork.smolagents._policy import authorized_imports, import_patterns, top_level_names


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["math"], ["math"]),
        (["os.path", "math", "math"], ["math", "os.path"]),
        (["numpy.*"], ["numpy.*"]),
        (["a.*.b"], ["a.*"]),
        ([], []),
        (["math", "*"], None),
    ],
)
def test_patterns(names: list[str], patterns: list[str] | None) -> None:
    assert import_patterns(names) == patterns


def test_base_modules_are_authorized() -> None:
    assert {"math", "datetime", "json"} <= set(authorized_imports(["json"]))
    assert "json" not in authorized_imports([])


def test_packages_of_patterns() -> None:
    assert top_level_names(["os.path", "numpy.*", "*", "os"]) == ["numpy", "os"]


def run(imports: list[str], code: str) -> object:
    executor = NativeExecutor(imports)
    try:
        return executor(code).output
    finally:
        executor.cleanup()


@pytest.mark.parametrize(
    ("imports", "code"),
    [
        ([], "import math; math.floor(2.5)"),
        (["json"], "import json; json.loads('2')"),
        (["os.path"], "import os.path; len(os.path.join('', '2')) + 1"),
        (["os.path"], "import os; len(os.sep) + 1"),
        (["xml.*"], "import xml.dom.minidom; len('ab')"),
        (["*"], "import subprocess; len('ab')"),
        # An authorized module may import any other.
        (["json"], "import json; json.decoder.scanner and 2"),
    ],
)
def test_authorized(imports: list[str], code: str) -> None:
    assert run(imports, code) == 2


@pytest.mark.parametrize(
    ("imports", "code", "name"),
    [
        ([], "import os", "os"),
        ([], "from os import path", "os"),
        (["xml"], "import xml.dom", "xml.dom"),
        (["json"], "def later():\n    import subprocess\nlater()", "subprocess"),
    ],
)
def test_refused_in_the_words_that_the_advice_is_given_by(imports: list[str], code: str, name: str) -> None:
    with pytest.raises(CodeError) as refused:
        run(imports, code)
    message = str(refused.value)
    assert f"Import of {name} is not allowed. Authorized imports are: " in message
    assert "'statistics'" in message


@pytest.mark.parametrize("name", ["no_such_module", "no_such_module.*", "no_such_module.part"])
def test_what_is_not_installed_is_said_at_once(name: str) -> None:
    with pytest.raises(ValueError, match="Non-installed authorized modules: no_such_module"):
        NativeExecutor(["json", name])

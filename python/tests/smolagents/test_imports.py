from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import PIL
import pytest
from smolagents import FinalAnswerTool
from smolagents.local_python_executor import InterpreterError

from sandfork import SessionEnded
from sandfork.smolagents import CodeError, NativeExecutor
from sandfork.smolagents._imports import Imports, authorized_imports, import_patterns

from .support import code_agent


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


def output(code: str, **options: Any) -> object:
    executor = NativeExecutor(**options)
    try:
        executor.send_tools({"final_answer": FinalAnswerTool()})
        return executor(code).output
    finally:
        executor.delete()


def run(imports: list[str], code: str) -> object:
    return output(code, additional_authorized_imports=imports)


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
def test_refusal_has_the_wording_that_the_advice_expects(imports: list[str], code: str, name: str) -> None:
    with pytest.raises(CodeError) as refused:
        run(imports, code)
    message = str(refused.value)
    assert f"Import of {name} is not allowed. Authorized imports are: " in message
    assert "'statistics'" in message


@pytest.mark.parametrize("name", ["no_such_module", "no_such_module.*", "no_such_module.part"])
def test_missing_import_is_reported_immediately(name: str) -> None:
    with pytest.raises(ValueError, match="Non-installed authorized modules: no_such_module"):
        NativeExecutor(["json", name])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"additional_imports": []},
        {"additional_imports": ["pillow"]},
        {"additional_imports": ["Pillow>=1", "PIL", "json"]},
        {"additional_imports": ["pillow"], "additional_authorized_imports": []},
        {"additional_authorized_imports": ["math"], "imports": "installed"},
    ],
)
def test_all_installed_packages_can_be_imported(options: dict[str, Any]) -> None:
    code = "import base64, os, subprocess\nfrom PIL import Image\nfinal_answer(Image.new('L', (2, 3)).size)"
    assert output(code, **options) == (2, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"additional_authorized_imports": ["pillow"]},
        {"additional_authorized_imports": ["pillow>=1"]},
        {"additional_imports": ["pillow"], "imports": "authorized"},
        {
            "additional_authorized_imports": ["math"],
            "additional_imports": ["pillow"],
            "imports": "authorized",
        },
    ],
)
def test_distributions_are_authorized_with_their_modules(options: dict[str, Any]) -> None:
    assert output("from PIL import Image\nimport PIL.ImageOps\nfinal_answer(1)", **options) == 1
    with pytest.raises(CodeError, match="Import of os is not allowed. Authorized imports are: .*'pillow'"):
        output("import os", **options)


def test_an_agent_takes_distributions() -> None:
    code = "from PIL import Image; final_answer(Image.new('L', (2, 3)).width)"
    with code_agent(code, additional_authorized_imports=["pillow"]) as agent:
        assert agent.run("?") == 2
    kwargs = {"additional_imports": ["pillow"]}
    with code_agent("import os\n" + code, executor_kwargs=kwargs) as agent:
        assert agent.run("?") == 2


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no-such-package", "no-such-package"),
        ("pillow>=9999", f"pillow>=9999 ({PIL.__version__} is installed)"),
        ("PIL>=1", "PIL>=1"),
        ("no_such_package[extra]>=2", "no_such_package[extra]>=2"),
        ("a b", "a b"),
    ],
)
def test_missing_import_is_named_with_its_environment(name: str, told: str) -> None:
    # A policy that lists the packages of the code.
    policy = {"python": {"packages": []}}
    with pytest.raises(InterpreterError) as refused:
        NativeExecutor(additional_imports=["json", name], policy=policy)
    message = str(refused.value)
    assert message.startswith(f"Non-installed additional imports: {told}. Please install these modules into ")
    assert sys.prefix in message


@pytest.mark.parametrize("name", ["no-such-package", "pillow>=9999", "no_such_package[extra]>=2"])
def test_failed_installation_is_reported(index: int, name: str) -> None:
    with pytest.raises(
        InterpreterError, match="^The additional imports .* cannot be installed: the packages"
    ) as refused:
        NativeExecutor(additional_imports=["json", name])
    assert "the index has no such version" in str(refused.value)


@pytest.mark.parametrize("name", ["a b", "*.x"])
def test_invalid_name_is_not_installed(name: str) -> None:
    with pytest.raises(InterpreterError, match="Non-installed additional imports: "):
        NativeExecutor(additional_imports=["json", name, "-r x"])


def test_import_list_of_the_policy_applies() -> None:
    policy = {"imports": {"allow": ["json"]}}
    with pytest.raises(CodeError, match=r"Import of os is not allowed. Authorized imports are: \['json'\]"):
        output("import os", policy=policy)
    with pytest.raises(CodeError, match="Import of os is not allowed"):
        output("__import__('os')", policy=policy)
    assert output("import json; final_answer(1)", policy=policy) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"imports": "all"},
        {"imports": ["json"]},
        {"additional_imports": "pandas"},
        {"additional_imports": ["json", 3]},
        {"additional_authorized_imports": "pandas"},
    ],
)
def test_invalid_arguments_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give "):
        NativeExecutor(**options)


def test_functions_of_math_and_dates_need_no_authorized_import() -> None:
    assert run([], "floor(2.5)") == 2
    assert run([], "import datetime; datetime.datetime.strptime('2020', '%Y').year") == 2020


def test_import_lookup_has_its_own_timeout() -> None:
    class Sandbox:
        def run(self, code: str, *, timeout: float) -> Any:
            return SimpleNamespace(
                status="ok" if timeout == 30 else "timeout", error=None, value=[(True, None)]
            )

    Imports(["json"], None, None).require(Sandbox())  # type: ignore[arg-type]


def test_imports_that_cannot_be_looked_up_are_an_error() -> None:
    policy = {"limits": {"cpu": "1ms"}}
    # The session may use up its processor time before the first request.
    with pytest.raises((InterpreterError, SessionEnded), match=r"limits\.cpu"):
        NativeExecutor(additional_imports=[f"no-such-package-{n}" for n in range(2000)], policy=policy)


def test_missing_packages_are_installed(index: int) -> None:
    code = "import shapes, colours\nfinal_answer([shapes.sides, colours.red])"
    assert output(code, additional_imports=["shapes>=2", "json"]) == [4, "ff0000"]
    # Either argument may list a package, by the name of its module.
    listed = {
        "additional_imports": ["shapes"],
        "additional_authorized_imports": ["colours"],
        "imports": "authorized",
    }
    assert output(code, **listed) == [4, "ff0000"]
    with pytest.raises(
        InterpreterError,
        match="additional imports shapes, absent cannot be installed: .*`absent` is not found",
    ):
        NativeExecutor(additional_imports=["shapes", "absent"])
    # Authorized modules are looked up and never installed, as with the local executor.
    with pytest.raises(ValueError, match="Non-installed authorized modules: shapes"):
        NativeExecutor(["shapes"])


def test_policy_with_packages_takes_precedence(index: int) -> None:
    policy = {"python": {"packages": ["colours"]}, "environments": {"create": True}}
    assert output("import colours\nfinal_answer(colours.red)", policy=policy) == "ff0000"
    with pytest.raises(InterpreterError, match="Non-installed additional imports: shapes"):
        NativeExecutor(additional_imports=["shapes"], policy=policy)


@pytest.mark.parametrize(
    ("asked", "packages"),
    [
        (["PIL", "pillow", "PIL>=9"], ["pillow", "pillow>=9"]),
        (["numpy.linalg", "numpy>=2"], ["numpy", "numpy>=2"]),
        (["sklearn", "yaml", "bs4.element"], ["scikit-learn", "PyYAML", "beautifulsoup4"]),
        (["json", "os.path", "*", "xml.*"], []),
    ],
)
def test_module_names_map_to_their_distributions(asked: list[str], packages: list[str]) -> None:
    assert Imports(asked, None, None).packages() == packages

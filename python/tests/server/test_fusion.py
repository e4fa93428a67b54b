"""SandboxFusion's own client, unmodified, and the requests that trainers send by hand."""

from __future__ import annotations

import base64
import shutil
import sys

import pytest

from .support import Server

if sys.version_info < (3, 10):
    pytest.skip("sandbox-fusion is tested with Python 3.10 and later", allow_module_level=True)

import sandbox_fusion as fusion

# Its client asks asyncio what is a coroutine, which Python 3.14 deprecates.
pytestmark = pytest.mark.filterwarnings(
    "ignore:'asyncio.iscoroutinefunction' is deprecated:DeprecationWarning"
)


def _run(server: Server, code: str, language: str = "python", **more: object) -> fusion.RunCodeResponse:
    request = fusion.RunCodeRequest(code=code, language=language, **more)
    return fusion.run_code(request, endpoint=server.url, max_attempts=1)


def test_a_program_reads_its_input_and_its_files(server: Server) -> None:
    helper = base64.b64encode(b"factor = 6\n").decode()
    code = "import helper\nopen('out/made.txt', 'w').write('made')\nprint(helper.factor * int(input()))"
    result = _run(
        server,
        f"import os\nos.mkdir('out')\n{code}",
        stdin="7\n",
        files={"helper.py": helper, "unused": None},
        fetch_files=["out/made.txt", "missing.txt"],
    )
    assert result.status == fusion.RunStatus.Success
    assert result.run_result is not None
    assert result.run_result.stdout == "42\n"
    assert result.run_result.return_code == 0
    assert result.files == {"out/made.txt": base64.b64encode(b"made").decode()}


@pytest.mark.parametrize(
    ("code", "timeout", "status", "return_code", "stderr"),
    [
        ("1/0", 30, "Finished", 1, "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", 30, "Finished", 3, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 30, "Finished", -11, ""),
        ("x = 'a' * 10**9", 30, "Finished", 137, "limits.memory"),
        ("while True: pass", 1, "TimeLimitExceeded", None, "limits.wall"),
    ],
)
def test_failure_describes_its_cause(
    server: Server, code: str, timeout: int, status: str, return_code: int | None, stderr: str
) -> None:
    result = _run(server, code, run_timeout=timeout, memory_limit_MB=256)
    assert result.status == fusion.RunStatus.Failed
    assert result.run_result is not None
    assert result.run_result.status == status
    assert result.run_result.return_code == return_code
    assert stderr in (result.run_result.stderr or "")


def test_timeout_is_capped_by_the_policy(server: Server) -> None:
    assert _run(server, "print(1)", run_timeout=10**9).status == fusion.RunStatus.Success


def test_memory_limit_of_the_request_applies(server: Server) -> None:
    code = "print(len('a' * (100 << 20)))"
    request = {"code": code, "memory_limit_MB": 64}
    failed = server.ask("POST", "/run_code", request).json
    assert failed["run_result"]["return_code"] == 137, failed
    assert server.ask("POST", "/run_code", {"code": code}).json["status"] == "Success"


def test_a_compiler_runs_before_the_program(server: Server) -> None:
    if shutil.which("g++", path="/usr/bin:/bin") is None:
        pytest.skip("g++ is not installed")
    code = "#include <iostream>\nint main() { int n; std::cin >> n; std::cout << n * 2; }"
    result = _run(server, code, "cpp", stdin="21")
    assert result.compile_result is not None
    assert result.compile_result.return_code == 0
    assert result.run_result is not None
    assert result.run_result.stdout == "42"
    failed = _run(server, "int main( {", "cpp")
    assert failed.status == fusion.RunStatus.Failed
    assert failed.run_result is None
    assert failed.compile_result is not None
    assert "error" in (failed.compile_result.stderr or "")


def test_programs_of_the_host(server: Server) -> None:
    result = _run(server, "read line; echo $((line * 2))", "bash", stdin="21\n")
    assert result.run_result is not None
    assert result.run_result.stdout == "42\n"


def test_language_without_its_program_is_a_request_error(server: Server) -> None:
    if shutil.which("julia", path="/usr/bin:/bin") is not None:
        pytest.skip("julia is installed")
    answer = server.ask("POST", "/run_code", {"code": "1", "language": "julia"})
    assert answer.status == 422
    assert "`julia` is not available" in answer.json["detail"]


def test_cells_share_their_variables_and_show_their_values(server: Server) -> None:
    cells = [
        "a = 123",
        "a",
        "print(a)",
        "import sys; sys.stderr.write('e')",
        "raise RuntimeError('x')",
        "open('b', 'w').write(open('in').read())",
    ]
    files = {"in": base64.b64encode(b"read").decode()}
    request = fusion.RunJupyterRequest(cells=cells, files=files, fetch_files=["b"])
    result = fusion.run_jupyter(request, endpoint=server.url, max_attempts=1)
    assert result.status == fusion.RunStatus.Success
    assert result.cells[1].display == [{"text/plain": "123"}]
    assert (result.cells[2].stdout, result.cells[3].stderr) == ("123\n", "e")
    (error,) = result.cells[4].error
    assert (error["ename"], error["evalue"]) == ("RuntimeError", "x")
    assert result.files == {"b": base64.b64encode(b"read").decode()}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("2**64", "18446744073709551616"),
        ("b'abc'", "b'abc'"),
        ("list(range(1000))[:513]", repr(list(range(513)))),
        ("[0.5] * 600", repr([0.5] * 600)),
        ("'\\ud800'", r"'\ud800'"),
        ("1+2j", "(1+2j)"),
        ("range(3)", "range(0, 3)"),
        ("import datetime\n{'k': datetime.date(2020, 1, 1)}", "{'k': datetime.date(2020, 1, 1)}"),
        ("None", None),
        ("x = 1", None),
    ],
)
def test_the_text_of_a_value_is_its_repr(server: Server, code: str, text: str | None) -> None:
    (cell,) = server.ask("POST", "/run_jupyter", {"cells": [code]}).json["cells"]
    assert cell["display"] == ([] if text is None else [{"text/plain": text}])


def test_a_long_value_is_shortened(server: Server) -> None:
    (cell,) = server.ask("POST", "/run_jupyter", {"cells": ["'x' * 32769"]}).json["cells"]
    text = cell["display"][0]["text/plain"]
    assert text.startswith("'xxx")
    assert text.endswith("xxx'")
    assert len(text) < 20_000


def test_the_time_of_all_cells_is_bounded(server: Server) -> None:
    cells = ["import time", "time.sleep(60)", "print(1)"]
    request = fusion.RunJupyterRequest(cells=cells, total_timeout=3)
    result = fusion.run_jupyter(request, endpoint=server.url, max_attempts=1)
    assert result.status == fusion.RunStatus.Failed
    assert result.driver is not None
    assert result.driver.status == "TimeLimitExceeded"
    assert len(result.cells) == 2


def test_unrepresentable_time_is_no_limit(server: Server) -> None:
    for time in (1e18, 1e300):
        request = {"cells": ["print(1)"], "total_timeout": time}
        assert server.ask("POST", "/run_jupyter", request).json["status"] == "Success"
    answer = server.ask("POST", "/run_jupyter", {**request, "total_timeout": -1})
    assert answer.status == 422
    assert "total_timeout: -1 s" in answer.json["detail"]


async def test_asyncio_client_works(server: Server) -> None:
    request = fusion.RunCodeRequest(code="print(6 * 7)", language="python")
    result = await fusion.run_code_async(request, endpoint=server.url, max_attempts=1)
    assert result.run_result is not None
    assert result.run_result.stdout == "42\n"


def test_a_request_without_a_language_is_python(server: Server) -> None:
    # The form in which trainers send a request, with fields that the server ignores.
    request = {"compile_timeout": 30, "run_timeout": 30, "code": "print(input())", "stdin": "4", "seed": 1}
    assert server.ask("POST", "/run_code", request).json["run_result"]["stdout"] == "4\n"
    assert server.ask("GET", "/v1/ping").json == "pong"


@pytest.mark.parametrize(
    ("request_", "word"),
    [
        ({}, "code"),
        ({"code": 1}, "invalid type"),
        ({"code": "1", "language": "cobol"}, "cobol"),
        ({"code": "1", "run_timeout": -1}, "-1"),
        ({"code": "1", "run_timeout": 0}, "0 s"),
        ({"code": "1", "files": {"../up": "eA=="}}, "../up"),
        ({"code": "1", "files": {"/etc/passwd": "eA=="}}, "/etc/passwd"),
        ({"code": "1", "files": {"a": "?"}}, "base64"),
        ({"code": "1", "fetch_files": ["/etc/passwd"]}, "/etc/passwd"),
    ],
)
def test_request_error_is_one_sentence_with_its_field(server: Server, request_: dict, word: str) -> None:
    answer = server.ask("POST", "/run_code", request_)
    assert answer.status == 422, answer
    assert word in answer.json["detail"]

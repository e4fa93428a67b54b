"""Sandfork's own API."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import time

import pytest

from ..support.waiting import eventually
from .support import Server


def test_a_run_answers_with_its_outcome(server: Server) -> None:
    code = "import sys\nopen('b', 'w').write(open('a').read())\nprint(sys.argv[1], input())\n6 * 7"
    answer = server.run(
        code,
        args=["x"],
        stdin="y",
        files={"a": base64.b64encode(b"kept").decode()},
        fetch=["b"],
        limits={"wall": 5, "cpu": 5, "output": 1000, "memory": 256 << 20},
    )
    outcome = answer.json
    assert (answer.status, outcome["status"], outcome["value"]) == (200, "ok", 42)
    assert answer.headers["content-length"] == str(len(answer.body))
    assert outcome["stdout"] == "x y\n"
    assert outcome["files"] == {"b": base64.b64encode(b"kept").decode()}
    assert "seccomp" in outcome["enforced"]["layers"]


def test_limits_are_written_alike_in_all_requests(server: Server) -> None:
    session = server.ask("POST", "/v1/sessions", {}).json["id"]
    for wall in (0.2, "200ms"):
        # More processor time than there can be in that time.
        for cpu, memory in ((5, 256 << 20), ("5s", "256MiB")):
            limits = {"wall": wall, "cpu": cpu, "output": "1KiB", "memory": memory}
            answer = server.run("while True: pass", limits=limits)
            assert answer.json["status"] == "timeout", answer
        task = {"code": "while True: pass", "limits": {"wall": wall, "cpu": "1s", "output": 1000}}
        assert server.ask("POST", "/v1/batches", {"tasks": [task]}).json["status"] == "timeout"
        cell = {"code": "while True: pass", "wall": wall}
        assert server.ask("POST", f"/v1/sessions/{session}/cells", cell).json["status"] == "timeout"


def test_modules_and_programs_run_too(server: Server) -> None:
    module = server.ask("POST", "/v1/runs", {"module": "base64", "args": ["-h"]}).json
    assert "usage" in module["stdout"] + module["stderr"]
    assert server.ask("POST", "/v1/runs", {"program": ["echo", "1"]}).json["stdout"] == "1\n"


def _events(server: Server, path: str, body: dict) -> list[tuple[str, dict]]:
    answer = server.ask("POST", path, body, Accept="text/event-stream")
    assert answer.headers["content-type"] == "text/event-stream"
    blocks = [block.splitlines() for block in answer.body.decode().split("\n\n") if "data:" in block]
    return [
        (block[0].removeprefix("event: "), json.loads(block[1].removeprefix("data: "))) for block in blocks
    ]


def test_output_comes_as_events_and_the_result_last(server: Server) -> None:
    code = "import sys\nprint('o', flush=True)\nsys.stderr.write('e')\n1"
    *output, (name, result) = _events(server, "/v1/runs", {"code": code})
    assert sorted((name, data["text"]) for name, data in output) == [("stderr", "e"), ("stdout", "o\n")]
    assert (name, result["value"]) == ("result", 1)
    code = "import sys\nsys.stdout.buffer.write('a\u20ac'.encode()[:-1])"
    *output, (name, result) = _events(server, "/v1/runs", {"code": code})
    assert "".join(data["text"] for name, data in output) == result["stdout"] == "a\ufffd"


def test_a_mistake_has_its_status_with_events_too(server: Server) -> None:
    answer = server.ask("POST", "/v1/runs", {}, Accept="text/event-stream")
    assert answer.status == 422


def _results(server: Server, body: object) -> dict:
    answer = server.ask("POST", "/v1/batches", body)
    assert answer.status == 200, answer
    lines = [json.loads(line) for line in answer.body.splitlines()]
    return {line["id"]: line for line in lines}


def test_a_batch_has_a_line_for_each_task(server: Server) -> None:
    tasks = [{"stdin": str(number), "expect": {"stdout": str(number * 2)}} for number in range(40)]
    tasks += [{"id": "wrong", "stdin": "1", "expect": {"stdout": "3"}}, {"id": "none", "stdin": "x"}]
    results = _results(server, {"common": {"code": "print(int(input()) * 2)"}, "tasks": tasks})
    assert len(results) == 42
    assert all(results[number]["verdict"] == "pass" for number in range(40))
    assert results["wrong"]["verdict"] == "wrong"
    assert results["none"]["error"]["name"] == "ValueError"


def test_what_is_too_long_is_named(server: Server) -> None:
    answer = server.run("1", args=["x" * (3 << 20)])
    assert answer.status == 422
    assert "arguments" in answer.json["error"]["message"]


def test_a_file_name_with_a_nul_is_refused(server: Server) -> None:
    session = server.ask("POST", "/v1/sessions").json["id"]
    cells = f"/v1/sessions/{session}/cells"
    answer = server.ask("POST", cells, {"code": "1", "filename": "a\0b"})
    assert answer.status == 422
    assert "filename" in answer.json["error"]["message"]
    assert server.ask("POST", cells, {"code": "1"}).json["value"] == 1

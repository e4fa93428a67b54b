"""Sandfork's own API."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import pathlib
import time
from typing import Any

import pytest

from ..support.waiting import eventually
from .support import Server


def test_run_responds_with_its_outcome(server: Server) -> None:
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
        # The CPU limit cannot be reached within the wall limit.
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


def test_output_is_streamed_before_the_result(server: Server) -> None:
    code = "import sys\nprint('o', flush=True)\nsys.stderr.write('e')\n1"
    *output, (name, result) = _events(server, "/v1/runs", {"code": code})
    assert sorted((name, data["text"]) for name, data in output) == [("stderr", "e"), ("stdout", "o\n")]
    assert (name, result["value"]) == ("result", 1)
    code = "import sys\nsys.stdout.buffer.write('a\u20ac'.encode()[:-1])"
    *output, (name, result) = _events(server, "/v1/runs", {"code": code})
    assert "".join(data["text"] for name, data in output) == result["stdout"] == "a\ufffd"


def test_request_error_has_its_status_with_event_streams_too(server: Server) -> None:
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


@pytest.mark.parametrize(
    "task",
    [
        {"file": "/etc/passwd"},
        {"code": "1", "policy": "/etc/passwd"},
        {"cod": "1"},
        {"limits": {"wall": "99h"}, "code": "1"},
    ],
)
def test_invalid_task_is_an_error_in_its_line(server: Server, task: dict) -> None:
    results = _results(server, {"tasks": [{"id": "a", **task}, {"code": "1"}]})
    # A retry would fail in the same way.
    assert results["a"]["status"] == "refused"
    assert next(iter(task)) in results["a"]["error"]["message"] or "policy" in task
    assert results[1]["value"] == 1


def test_a_batch_has_its_bounds(server: Server) -> None:
    assert server.ask("POST", "/v1/batches", {"tasks": [{}] * 100_001}).status == 422
    assert server.ask("POST", "/v1/batches", {"task": []}).status == 422
    assert server.ask("POST", "/v1/batches", {"tasks": []}).body == b""


@pytest.fixture
def session(server: Server) -> str:
    answer = server.ask("POST", "/v1/sessions", {"idle": 60})
    assert answer.status == 201
    return f"/v1/sessions/{answer.json['id']}"


def test_a_session_keeps_its_variables(server: Server, session: str) -> None:
    assert server.ask("POST", f"{session}/cells", {"code": "x = 41"}).json["status"] == "ok"
    report = server.ask("POST", f"{session}/cells", {"code": "x + 1"}).json
    assert (report["value"], report["session"]) == (42, "live")
    *_, (name, result) = _events(server, f"{session}/cells", {"code": "print(x)\nx"})
    assert (name, result["value"], result["stdout"]) == ("result", 41, "41\n")
    assert server.ask("POST", f"{session}/restart").status == 204
    assert server.ask("POST", f"{session}/cells", {"code": "x"}).json["error"]["name"] == "NameError"


def test_fork_of_a_session_is_independent(server: Server, session: str) -> None:
    assert (
        server.ask("POST", f"{session}/cells", {"code": "x = [1]; open('kept', 'w').write('text')"}).status
        == 200
    )
    answer = server.ask("POST", f"{session}/fork")
    assert answer.status == 201
    fork = f"/v1/sessions/{answer.json['id']}"
    assert server.ask("POST", f"{fork}/cells", {"code": "x.append(2); [open('kept').read(), x]"}).json[
        "value"
    ] == ["text", [1, 2]]
    assert server.ask("POST", f"{session}/cells", {"code": "x"}).json["value"] == [1]
    assert (
        server.ask("POST", f"{session}/cells", {"code": "import socket; s, t = socket.socketpair()"}).status
        == 200
    )
    refused = server.ask("POST", f"{session}/fork")
    assert (refused.status, refused.json["error"]["kind"]) == (422, "request")
    assert "cannot snapshot: descriptor" in refused.json["error"]["message"]
    assert server.ask("DELETE", session).status == 204
    assert server.ask("POST", f"{fork}/cells", {"code": "x"}).json["value"] == [1, 2]


def test_a_session_shows_its_displays(server: Server, session: str) -> None:
    code = "class Shown:\n    def _repr_html_(self):\n        return '<b>1</b>'\nShown()"
    report = server.ask("POST", f"{session}/cells", {"code": code}).json
    (display,) = report["displays"]
    assert display["main"]
    assert display["data"]["text/html"] == "<b>1</b>"


def test_files_go_in_and_out(server: Server, session: str) -> None:
    assert server.ask("PUT", f"{session}/files/sub/a.csv", b"1,2").status == 204
    code = "open('sub/b', 'wb').write(open('sub/a.csv', 'rb').read()[::-1])"
    assert server.ask("POST", f"{session}/cells", {"code": code}).json["status"] == "ok"
    assert server.ask("GET", f"{session}/files/sub/b").body == b"2,1"
    entries = server.ask("GET", f"{session}/directories/sub").json["entries"]
    assert [entry["name"] for entry in entries] == ["a.csv", "b"]
    for root in ("directories", "directories/", "directories/%2e"):
        entries = server.ask("GET", f"{session}/{root}").json["entries"]
        assert [entry["name"] for entry in entries] == ["sub"], root
    assert server.ask("DELETE", f"{session}/files/sub").status == 204
    assert server.ask("GET", f"{session}/files/sub/b").status == 404
    assert server.ask("PUT", f"{session}/directories/c/d").status == 204


@pytest.mark.parametrize("path", ["..%2Fup", "%2Fetc%2Fpasswd", "a%00b", "..%2F..%2Fetc%2Fpasswd"])
def test_paths_cannot_leave_the_work_directory(server: Server, session: str, path: str) -> None:
    for method, body in (("GET", None), ("PUT", b"x"), ("DELETE", None)):
        assert server.ask(method, f"{session}/files/{path}", body).status in (404, 422)


def test_a_link_of_the_guest_is_not_followed(server: Server, session: str) -> None:
    code = "import os; os.symlink('/etc/passwd', 'link')"
    assert server.ask("POST", f"{session}/cells", {"code": code}).json["status"] == "ok"
    answer = server.ask("GET", f"{session}/files/link")
    assert answer.status in (404, 422)
    assert b"root" not in answer.body


def test_a_cell_is_interrupted(server: Server, session: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", f"{session}/cells", json.dumps({"code": "import time\ntime.sleep(60)"}))
    eventually(lambda: server.ask("GET", session).json["busy"])
    assert server.ask("POST", f"{session}/interrupt").status == 204
    report = json.loads(connection.getresponse().read())
    connection.close()
    assert report["error"]["name"] == "KeyboardInterrupt"
    assert server.ask("POST", f"{session}/cells", {"code": "1"}).json["value"] == 1


def test_disconnected_client_interrupts_its_cell(server: Server, session: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", f"{session}/cells", json.dumps({"code": "import time\ntime.sleep(25)"}))
    eventually(lambda: server.ask("GET", session).json["busy"])
    connection.close()
    begun = time.monotonic()
    assert server.ask("POST", f"{session}/cells", {"code": "1"}).json["value"] == 1
    assert time.monotonic() - begun < 20


def test_cells_that_wait_end_with_their_session(server: Server, session: str) -> None:
    with contextlib.ExitStack() as stack:

        def begin(code: str) -> http.client.HTTPConnection:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            stack.callback(connection.close)
            connection.request("POST", f"{session}/cells", json.dumps({"code": code}))
            return connection

        running = begin("import time\ntime.sleep(25)")
        while not server.ask("GET", session).json["busy"]:
            time.sleep(0.01)
        waiting = [begin("print(1)") for _ in range(4)]
        # No interface shows that these requests wait. A request that arrived later would also get a 404.
        time.sleep(0.5)
        assert server.ask("DELETE", session).status == 204
        assert json.loads(running.getresponse().read())["status"] == "interrupted"
        for connection in waiting:
            assert connection.getresponse().status == 404


def test_closed_session_is_not_found(server: Server, session: str) -> None:
    assert server.ask("DELETE", session).status == 204
    for method, path in (("DELETE", ""), ("GET", ""), ("POST", "/cells"), ("GET", "/files/a")):
        body = {"code": "1"} if path == "/cells" else None
        assert server.ask(method, session + path, body).status == 404


def test_idle_session_is_closed(server: Server) -> None:
    answer = server.ask("POST", "/v1/sessions", {"idle": 0.1})
    eventually(lambda: answer.json["id"] not in server.ask("GET", "/v1/sessions").body.decode())


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"{", "EOF"),
        ({"code": "1", "program": ["x"]}, "one of"),
        ({"program": []}, "one of"),
        ({"codes": "1"}, "codes"),
        ({"code": "1", "limits": {"walls": 1}}, "walls"),
        ({"code": "1", "limits": {"output": 1 << 50}}, "limits.output"),
        ({"code": "1", "limits": {"output": 1.5}}, "limits.output: 1.5 is not a number of bytes"),
        ({"code": "1", "limits": {"wall": "1"}}, 'limits.wall: "1" has no unit'),
        ({"code": "1", "limits": {"wall": []}}, "a text with a unit"),
        ({"code": "1", "limits": {"memory": 1}}, "limits.memory: 1B is out of range"),
        ({"code": "1", "limits": {"wall": "99h"}}, "limits.wall: 99h is above the policy's 30s"),
        ({"code": "1", "limits": {"cpu": 1e300}}, "limits.cpu: 1e+300 is above the policy's"),
        ({"code": "1", "limits": {"memory": "9TiB"}}, "limits.memory: 9TiB is above the policy's"),
        ({"code": "x" * (17 << 20)}, "too large"),
        (b'{"code": "\xff"}', "unicode"),
        (b'{"args": ' + b"[" * 100_000, "type"),
    ],
)
def test_request_error_is_one_sentence(server: Server, body: object, word: str) -> None:
    answer = server.ask("POST", "/v1/runs", body)
    assert answer.status == 422, answer
    error = answer.json["error"]
    assert error["kind"] == "request"
    assert word in error["message"]
    assert "--set" not in error["message"]


def test_unknown_paths_and_methods(server: Server) -> None:
    assert server.ask("GET", "/nothing").json["error"]["kind"] == "not-found"
    for path in ("/v1/runs", "/run_code", "/sandboxes/0/timeout", "/healthz"):
        answer = server.ask("PATCH", path)
        assert answer.status == 405, path
        said = answer.json.get("message") or answer.json["error"]["message"]
        assert said.startswith("this path does not support PATCH"), path
        assert answer.headers["allow"] == ("GET,HEAD" if path == "/healthz" else "POST")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/sessions/{session}/files/%FF"),
        ("GET", "/v1/sessions/{session}/files/%FF"),
        ("DELETE", "/v1/sessions/%FF"),
        ("DELETE", "/templates/%FF"),
    ],
)
def test_non_text_path_is_a_request_error(server: Server, method: str, path: str) -> None:
    session = server.ask("POST", "/v1/sessions", {}).json["id"]
    answer = server.ask(method, path.format(session=session))
    assert answer.status in (400, 422)
    said = answer.json.get("message") or answer.json["error"]["message"]
    assert "Invalid UTF-8" in said


def test_openapi_describes_every_route(server: Server) -> None:
    described = server.ask("GET", "/v1/openapi.json").json
    assert described["openapi"].startswith("3.")
    for path, methods in described["paths"].items():
        for method in methods:
            filled = path.replace("{id}", "0").replace("{path}", "a")
            answer = server.ask(method.upper(), filled)
            assert answer.status != 405, (method, path)
            assert b"no such path" not in answer.body, (method, path)


def test_outcome_matches_its_description(server: Server) -> None:
    schemas = server.ask("GET", "/v1/openapi.json").json["components"]["schemas"]
    keys = {name: set(schema.get("properties", {})) for name, schema in schemas.items()}
    failed = server.run("import socket; socket.socket()").json
    assert set(failed) == keys["Outcome"] | keys["RunReport"]
    assert set(failed["error"]) == keys["Exception"]
    assert set(failed["denied"][0]) <= keys["Denial"]
    for part in ("enforced", "policy"):
        assert set(failed[part]) == keys[part.capitalize()]
    assert set(failed["usage"]) >= keys["Usage"]
    assert set(server.run("while True: pass", limits={"wall": 0.1}).json["limit"]) == keys["Limit"]
    session = server.ask("POST", "/v1/sessions", {}).json["id"]
    report = server.ask("POST", f"/v1/sessions/{session}/cells", {"code": "1"}).json
    assert set(report) == keys["Outcome"] | keys["Report"]


def test_batch_keeps_the_ids_of_its_tasks(server: Server) -> None:
    for ids in (["a", "a"], [1, None, 1], [1, None]):
        tasks = [{"id": id, "code": "1"} if id is not None else {"code": "1"} for id in ids]
        answer = server.ask("POST", "/v1/batches", {"tasks": tasks})
        assert answer.status == 422, ids
        assert "occurs twice" in answer.json["error"]["message"]


def test_oversized_arguments_are_named(server: Server) -> None:
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


def test_file_is_unchanged_if_the_data_does_not_fit(start: Any) -> None:
    server = start("--set", "filesystem.work_size=1MiB")
    session = server.ask("POST", "/v1/sessions", {}).json["id"]
    files = f"/v1/sessions/{session}/files"
    assert server.ask("PUT", f"{files}/kept", b"precious").status == 204
    for name in ("kept", "new"):
        answer = server.ask("PUT", f"{files}/{name}", b"x" * (2 << 20))
        assert answer.status == 422
        assert "filesystem.work_size" in answer.json["error"]["message"]
    assert server.ask("GET", f"{files}/kept").body == b"precious"
    entries = server.ask("GET", f"/v1/sessions/{session}/directories").json["entries"]
    assert [entry["name"] for entry in entries] == ["kept"]
    for contents in (b"x" * 100_000, b"y", b""):
        assert server.ask("PUT", f"{files}/kept", contents).status == 204
        assert server.ask("GET", f"{files}/kept").body == contents


def test_finished_task_keeps_its_status_if_output_does_not_fit(start: Any, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text('[http]\nbody = "64KiB"\nbodies = "2MiB"\n')
    server = start("--config", str(config), "--set", "limits.output=4MiB")
    tasks = [
        {"id": "long", "code": "print('x' * 3_000_000)", "expect": {"stdout": "y"}},
        # Their outputs together exceed the memory for answers.
        *({"id": number, "code": "print('x' * 1_500_000)"} for number in range(3)),
    ]
    answer = server.ask("POST", "/v1/batches", {"tasks": tasks})
    results = {result["id"]: result for result in map(json.loads, answer.body.splitlines())}
    long = results.pop("long")
    assert (long["status"], long["stdout"], long["error"]) == ("ok", "", None)
    assert long["verdict"] == "wrong"
    assert "http.bodies" in long["left_out"]
    for result in results.values():
        assert (result["status"], len(result["stdout"])) == ("ok", 1_500_001)
        assert "left_out" not in result


def test_a_time_of_a_request_is_named_with_its_field(server: Server) -> None:
    for seconds in (0, -1):
        for path, body, field in (
            ("/v1/runs", {"code": "1", "limits": {"wall": seconds}}, "limits.wall"),
            ("/v1/runs", {"code": "1", "limits": {"cpu": seconds}}, "limits.cpu"),
            ("/run_code", {"code": "1", "language": "python", "run_timeout": seconds}, "run_timeout"),
            ("/v1/sessions", {"idle": seconds}, "idle"),
        ):
            answer = server.ask("POST", path, body)
            assert answer.status == 422, (path, body)
            assert f"{field}: {seconds} s" in answer.body.decode()
    answer = server.ask("POST", "/run_jupyter", {"cells": ["1"], "cell_timeout": -1})
    assert "cell_timeout: -1 s" in answer.json["detail"]


def test_a_body_that_is_compressed_is_refused(server: Server) -> None:
    body = gzip.compress(b'{"code": "1"}')
    answer = server.ask("POST", "/v1/runs", body, Content_Encoding="gzip")
    assert answer.status == 422
    assert "Content-Encoding" in answer.json["error"]["message"]
    assert server.ask("POST", "/v1/runs", {"code": "1"}, Content_Encoding="identity").status == 200

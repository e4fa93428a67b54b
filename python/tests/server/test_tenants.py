"""Tenants: who may run code, and the limits of each."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import re
import select
import signal
import socket
import subprocess
import time
from typing import Any

import pytest

from sandfork import _binary

from ..support.waiting import eventually
from .support import Server

ALPHA, BETA = "a" * 32, "b" * 32

# A cell that ends and leaves a thread running.
BURN = """import threading, time
def burn():
    while True: pass
threading.Thread(target=burn, daemon=True).start()"""


@pytest.fixture
def tokens(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text(f"alpha {ALPHA}\nbeta {BETA}\nalpha {'c' * 32} 2020-01-01T00:00:00Z\n")
    return path


def _config(directory: pathlib.Path, text: str) -> str:
    path = directory / "server.toml"
    path.write_text(text)
    return str(path)


def _as(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_only_a_known_token_is_accepted(start: Any, tokens: pathlib.Path) -> None:
    server: Server = start("--token-file", str(tokens))
    body = {"code": "1"}
    assert server.ask("POST", "/v1/runs", body).status == 401
    assert "www-authenticate" in server.ask("POST", "/run_code", body).headers
    assert server.ask("POST", "/v1/runs", body, **_as("d" * 32)).json["error"]["kind"] == "unauthorized"
    assert "expired" in server.ask("POST", "/v1/runs", body, **_as("c" * 32)).json["error"]["message"]
    assert server.ask("POST", "/v1/runs", body, **_as(ALPHA)).status == 200
    assert server.ask("POST", "/v1/runs", body, X_API_Key=BETA).status == 200
    # The health check needs no token, because it tells nothing about tenants.
    assert server.ask("GET", "/healthz").status == 200


def test_session_list_reports_paused_sessions(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--set", "session.pause_after=100ms")
    session = "/v1/sessions/" + server.ask("POST", "/v1/sessions").json["id"]
    assert server.ask("POST", f"{session}/cells", {"code": "x = 41"}).json["status"] == "ok"
    eventually(lambda: server.ask("GET", session).json["paused"])
    [listed] = server.ask("GET", "/v1/sessions").json["sessions"]
    assert (listed["paused"], listed["busy"]) == (True, False)
    assert server.ask("POST", f"{session}/cells", {"code": "x + 1"}).json["value"] == 42


def test_clients_without_headers_have_the_token_in_their_url(start: Any, tokens: pathlib.Path) -> None:
    requests = pytest.importorskip("requests")
    server: Server = start("--token-file", str(tokens))
    url = f"http://any:{ALPHA}@127.0.0.1:{server.port}/run_code"
    assert requests.post(url, json={"code": "print(1)"}, timeout=60).json()["status"] == "Success"


def test_a_tenant_leaves_connections_to_others(start: Any, tokens: pathlib.Path) -> None:
    text = f"token_file = {str(tokens)!r}\n[http]\nconnections = 6\nhead = '10s'"
    server: Server = start("--config", _config(tokens.parent, text))
    session = server.ask("POST", "/v1/sessions", **_as(ALPHA)).json["id"]
    cell = json.dumps({"code": "import time; time.sleep(25)"})

    def begin(method: str, path: str, body: str | None = None) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request(method, f"/v1/sessions/{session}/{path}", body, _as(ALPHA))
        return connection

    running = begin("POST", "cells", cell)
    eventually(lambda: server.ask("GET", f"/v1/sessions/{session}", **_as(ALPHA)).json["busy"])
    # Requests after the cell wait for it, also those that do not count as runs.
    waiting = [begin("GET", "files/a"), begin("GET", "files/b")]

    def answer(method: str, path: str, body: Any = None) -> Any:
        # The server may have refused a request that arrived before the place of an earlier one was free.
        for n, connection in enumerate(waiting):
            if select.select([connection.sock], [], [], 0)[0]:
                connection.close()
                waiting[n] = begin("GET", "files/a")
        return server.ask(method, path, body, **_as(ALPHA))

    def refused() -> bool:
        refusal = answer("GET", "/v1/sessions")
        return refusal.status == 429 and refusal.json["error"]["kind"] == "busy"

    eventually(refused)
    # Trainers retry only after this status.
    eventually(lambda: answer("POST", "/run_code", {"code": "1"}).status == 504)
    assert server.ask("POST", "/v1/runs", {"code": "1"}, **_as(BETA)).status == 200
    for connection in (running, *waiting):
        connection.close()
    eventually(lambda: server.ask("GET", "/v1/sessions", **_as(ALPHA)).status == 200)


def test_sessions_leave_descriptors_to_others(start: Any, tokens: pathlib.Path) -> None:
    # Below 1024 no worker starts, because its data socket has the number 1023.
    server: Server = start("--token-file", str(tokens), "--jobs", "2", descriptors=1100)
    # Another thread of the server writes the log.
    eventually(lambda: "of the 64 sessions" in server.log.read_text())
    answers = [server.ask("POST", "/v1/sessions", **_as(ALPHA)) for _ in range(12)]
    [refused, *_] = [answer for answer in answers if answer.status != 201]
    assert (refused.status, refused.json["error"]["kind"]) == (429, "busy")
    assert server.ask("POST", "/v1/sessions", **_as(BETA)).status == 201
    session = f"/v1/sessions/{answers[0].json['id']}"
    assert server.ask("POST", f"{session}/cells", {"code": "1"}, **_as(ALPHA)).status == 200
    # A closed session frees its place.
    assert server.ask("DELETE", session, **_as(ALPHA)).status == 204
    assert server.ask("POST", "/v1/sessions", **_as(ALPHA)).status == 201


def test_tenant_gets_half_of_the_possible_connections(start: Any, tokens: pathlib.Path) -> None:
    # Below 1024 no worker starts, because its data socket has the number 1023.
    server: Server = start("--token-file", str(tokens), descriptors=1100)
    session = f"/v1/sessions/{server.ask('POST', '/v1/sessions', **_as(ALPHA)).json['id']}"
    with contextlib.ExitStack() as stack:

        def begin(method: str, path: str, body: str | None = None) -> http.client.HTTPConnection:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            stack.callback(connection.close)
            connection.request(method, session + path, body, _as(ALPHA))
            return connection

        begin("POST", "/cells", json.dumps({"code": "import time; time.sleep(25)"}))
        eventually(lambda: server.ask("GET", session, **_as(ALPHA)).json["busy"])
        # These requests wait for the cell. A tenant has 275 places.
        waiting = [begin("GET", "/files/a") for _ in range(300)]
        ready, _, _ = select.select([connection.sock for connection in waiting], [], [], 20)
        assert ready, "all have a place"
        counts = server.ask("GET", "/metrics").body.decode()
        assert 'sandfork_refusals_total{tenant="alpha",kind="busy"}' in counts
        assert server.ask("POST", "/v1/runs", {"code": "1"}, **_as(BETA)).status == 200


# Replaces the process that starts programs, and does not answer.
_SWALLOW = """
import os, signal, socket
signal.signal(16, lambda *_: None)
summons = next(n for n in range(1022, 3, -1) if os.path.exists(f'/proc/self/fd/{n}'))
"""


def test_guests_that_do_not_start_programs_leave_threads_to_others(start: Any, tokens: pathlib.Path) -> None:
    text = f"token_file = {str(tokens)!r}\njobs = 1\nqueue = 1\n[default]\nsessions = 3"
    server: Server = start("--config", _config(tokens.parent, text))
    starting = []
    for _ in range(3):
        made = server.ask("POST", "/sandboxes", {"templateID": "base"}, **_as(ALPHA)).json
        of_sandbox = {"E2b-Sandbox-Id": made["sandboxID"], "X-Access-Token": made["envdAccessToken"]}
        assert server.ask("POST", "/execute", {"code": _SWALLOW}, **of_sandbox).status == 200
        message = json.dumps({"process": {"cmd": "true"}}).encode()
        body = bytes(1) + len(message).to_bytes(4, "big") + message
        # More requests than the server has threads besides those for runs.
        for _ in range(32):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            headers = {"Content-Type": "application/connect+json", **of_sandbox}
            connection.request("POST", "/process.Process/Start", body, headers)
            starting.append(connection)
    begun = time.monotonic()
    assert server.ask("POST", "/v1/runs", {"code": "1"}, **_as(BETA)).status == 200
    # The server waits half a minute for a program to start.
    assert time.monotonic() - begun < 20
    for connection in starting:
        connection.close()


def test_session_belongs_to_its_tenant(start: Any, tokens: pathlib.Path) -> None:
    server: Server = start("--token-file", str(tokens))
    opened = server.ask("POST", "/v1/sessions", **_as(ALPHA)).json["id"]
    path = f"/v1/sessions/{opened}"
    for method, below in (("GET", ""), ("POST", "/interrupt"), ("GET", "/files/a"), ("DELETE", "")):
        assert server.ask(method, path + below, **_as(BETA)).status == 404
    assert server.ask("GET", "/v1/sessions", **_as(BETA)).json == {"sessions": []}
    assert server.ask("GET", path, **_as(ALPHA)).status == 200


def _sandbox(server: Server, token: str) -> dict[str, str]:
    """Makes a sandbox with E2B's protocol, and returns the headers for requests to it."""
    made = server.ask("POST", "/sandboxes", {"templateID": "base"}, **_as(token)).json
    return {"E2B_Sandbox_Id": made["sandboxID"], "X_Access_Token": made["envdAccessToken"]}


def test_tokens_are_read_again(start: Any, tokens: pathlib.Path) -> None:
    server: Server = start("--token-file", str(tokens))
    of_alpha, of_beta = (_sandbox(server, token) for token in (ALPHA, BETA))
    tokens.write_text(f"alpha {BETA}\n")
    server.process.send_signal(signal.SIGHUP)
    eventually(lambda: server.ask("GET", "/v1/sessions", **_as(ALPHA)).status == 401)
    assert server.ask("GET", "/v1/sessions", **_as(BETA)).status == 200
    # A sandbox's own token is valid as long as its tenant has a token.
    assert server.ask("GET", "/health", **of_alpha).status == 204
    assert server.ask("GET", "/health", **of_beta).status == 502
    # An invalid token file changes nothing.
    tokens.write_text("short\n")
    server.process.send_signal(signal.SIGHUP)
    eventually(lambda: "stay unchanged" in server.log.read_text())
    [line] = [line for line in server.log.read_text().splitlines() if "stay unchanged" in line]
    assert "line 1" in line
    assert server.ask("GET", "/v1/sessions", **_as(BETA)).status == 200


def test_each_tenant_has_its_policy_and_quota(
    start: Any, tokens: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    text = (
        f"token_file = {str(tokens)!r}\n[tenants.alpha]\npolicy = 'strict'\nsessions = 1\n"
        "[tenants.beta]\nset = ['limits.output=100B']\nrate = 0.001\n"
    )
    server: Server = start("--config", _config(tmp_path, text))
    run = server.ask("POST", "/v1/runs", {"code": "1"}, **_as(ALPHA))
    assert run.json["policy"]["name"] == "strict"
    assert server.ask("POST", "/v1/sessions", **_as(ALPHA)).status == 201
    full = server.ask("POST", "/v1/sessions", **_as(ALPHA))
    assert (full.status, full.json["error"]["kind"]) == (429, "quota")
    run = server.ask("POST", "/v1/runs", {"code": "print('x' * 101)"}, **_as(BETA))
    assert run.json["status"] == "output-limit"
    often = server.ask("POST", "/v1/runs", {"code": "1"}, **_as(BETA))
    assert (often.status, often.headers["retry-after"]) == (429, "1")


def test_processor_time_of_an_hour_is_used_up(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _config(tmp_path, "[default]\ncpu_an_hour = '100ms'\n"))
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    assert server.run(burn).json["status"] == "ok"
    refused = server.run("1")
    assert refused.status == 429
    assert "CPU time" in refused.json["error"]["message"]


def test_work_on_sessions_needs_processor_time(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _config(tmp_path, "[default]\ncpu_an_hour = '2s'\n"))
    session = f"/v1/sessions/{server.ask('POST', '/v1/sessions').json['id']}"
    made = server.ask("POST", "/sandboxes", {"templateID": "base"}).json
    sandbox = f"/sandboxes/{made['sandboxID']}"
    of_sandbox = {"E2b_Sandbox_Id": made["sandboxID"], "X_Access_Token": made["envdAccessToken"]}
    [context] = server.ask("GET", "/contexts", **of_sandbox).json
    assert server.ask("POST", f"{session}/fork").status == 201
    burn = "import time\nwhile time.process_time() < 3: pass"
    assert server.run(burn).json["status"] == "ok"
    for path in (
        "/v1/sessions",
        f"{session}/fork",
        f"{session}/restart",
        f"{sandbox}/fork",
        f"{sandbox}/snapshots",
    ):
        assert server.ask("POST", path).status == 429, path
    assert server.ask("POST", "/sandboxes", {"templateID": "base"}).status == 429
    assert server.ask("POST", f"/contexts/{context['id']}/restart", **of_sandbox).status == 429
    assert server.ask("POST", "/contexts", {}, **of_sandbox).status == 429
    # Requests that free a place are not refused.
    assert server.ask("DELETE", session).status == 204
    assert server.ask("POST", f"{sandbox}/connect").status == 200
    assert server.ask("DELETE", sandbox).status == 204


def test_an_interpreter_for_a_request_uses_up_processor_time(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _config(tmp_path, "[default]\ncpu_an_hour = '1s'\n"))
    statuses = {server.run("1", limits={"memory": f"{size}MiB"}).status for size in range(100, 140)}
    assert statuses == {200, 429}


def test_background_work_of_a_cell_uses_up_cpu_time(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _config(tmp_path, "[default]\ncpu_an_hour = '1s'\n"))
    cells = f"/v1/sessions/{server.ask('POST', '/v1/sessions').json['id']}/cells"
    assert server.ask("POST", cells, {"code": BURN}).json["status"] == "ok"
    while (answer := server.ask("POST", cells, {"code": "time.process_time()"})).status == 200:
        assert answer.json["value"] < 5
        time.sleep(0.1)
    assert answer.status == 429
    assert "CPU time" in answer.json["error"]["message"]


def test_background_work_counts_without_requests(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _config(tmp_path, "[default]\ncpu_an_hour = '1s'\n"))
    cells = f"/v1/sessions/{server.ask('POST', '/v1/sessions').json['id']}/cells"
    assert server.ask("POST", cells, {"code": BURN}).json["status"] == "ok"

    def counted() -> float:
        [line] = re.findall(rb"^sandfork_cpu_seconds_total.* (.*)$", server.ask("GET", "/metrics").body, re.M)
        return float(line)

    # Neither this request nor a run uses the session.
    eventually(lambda: counted() > 1.1)
    assert "CPU time" in server.run("1").json["error"]["message"]


def test_a_tenant_leaves_memory_of_bodies_to_others(
    start: Any, tokens: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    text = f"token_file = {str(tokens)!r}\n[http]\nbody = '1MiB'\nbodies = '4MiB'\n"
    server: Server = start("--config", _config(tmp_path, text))
    long = {"code": f"print('x' * 100_000) # {'x' * 100_000}"}
    head = (
        f"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {ALPHA}\r\nContent-Length: 1048576\r\n\r\n"
    )
    with contextlib.ExitStack() as stack:
        # These clients announce bodies and do not send them.
        for _ in range(8):
            address = ("127.0.0.1", server.port)
            connection = stack.enter_context(socket.create_connection(address, timeout=60))
            connection.sendall(head.encode())
        eventually(lambda: server.ask("POST", "/v1/runs", long, **_as(ALPHA)).status == 429)
        answer = server.ask("POST", "/v1/runs", long, **_as(BETA))
        assert (answer.status, len(answer.json["stdout"])) == (200, 100_001)


@pytest.mark.parametrize(("count", "status"), [(5_000, 200), (25_000, 413)])
def test_mcp_message_reserves_its_parsing_memory(
    start: Any, tmp_path: pathlib.Path, count: int, status: int
) -> None:
    server: Server = start("--config", _config(tmp_path, "[http]\nbody = '1MiB'\nbodies = '4MiB'\n"))
    arguments = {"python_code": "sum(x)", "global_variables": {"x": [0] * count}}
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "run_python_code", "arguments": arguments},
    }
    headers = {"Accept": "application/json, text/event-stream", "Content_Type": "application/json"}
    assert server.ask("POST", "/mcp", message, **headers).status == status


def test_overload_is_refused(start: Any) -> None:
    server: Server = start("--jobs", "1", "--queue", "0")
    session = f"/v1/sessions/{server.ask('POST', '/v1/sessions').json['id']}"
    with server.running("import time; time.sleep(60)"):
        refused = server.run("1")
        assert (refused.status, refused.json["error"]["kind"]) == (429, "busy")
        # Trainers retry only after this status.
        assert server.ask("POST", "/run_code", {"code": "1"}).status == 504
        for path in ("/v1/sessions", f"{session}/fork", f"{session}/restart"):
            assert server.ask("POST", path).json["error"]["kind"] == "busy", path
    # The cell's client has disconnected, so the server ends the cell.
    eventually(lambda: server.run("1").status == 200)


def test_server_shutdown_lets_runs_finish(start: Any) -> None:
    server: Server = start()
    assert server.ask("POST", "/v1/sessions").status == 201
    with server.running("import time; time.sleep(1); 42") as response:
        server.process.send_signal(signal.SIGTERM)
        result = response.read().decode().rpartition("data: ")[2]
        assert json.loads(result)["value"] == 42
    assert server.process.wait(60) == 0


def test_work_that_outlasts_the_drain_gets_a_response(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _config(tmp_path, 'drain = "100ms"'))
    session = f"/v1/sessions/{server.ask('POST', '/v1/sessions').json['id']}"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        cell = pool.submit(server.ask, "POST", f"{session}/cells", {"code": "import time; time.sleep(60)"})
        eventually(lambda: server.ask("GET", session).json["busy"])
        server.process.send_signal(signal.SIGTERM)
        answer = cell.result()
    assert (answer.status, answer.json["error"]["kind"]) == (503, "draining")
    assert server.process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "text", "code", "words"),
    [
        (["--listen", "0.0.0.0:0"], None, 2, "--token-file"),
        (["--policy", "nope"], None, 2, "nope"),
        (["--token-file", "/missing"], None, 2, "/missing"),
        (["--config", "CONFIG"], "[default]\nsets = []", 2, "sets"),
        (["--config", "CONFIG"], "[tenants.a]\npolicy = 'b.toml'", 2, "tenant `a`"),
        (["--config", "CONFIG"], "[default]\nmemory = '256MiB'", 2, "limits.memory"),
        (["--config", "CONFIG"], "[tenants.a]\nruns = 0", 2, "tenant `a`: runs"),
        (["--config", "CONFIG"], "[http]\nbodies = '1MiB'", 2, "http.bodies"),
        (["token", "a/b"], None, 2, "tenant"),
    ],
)
def test_server_that_cannot_start_gives_the_reason(
    tmp_path: pathlib.Path, arguments: list[str], text: str | None, code: int, words: str
) -> None:
    if text is not None:
        arguments = [_config(tmp_path, text) if word == "CONFIG" else word for word in arguments]
    command = [_binary.find(), "server", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_plain_tokens_that_others_can_read_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tokens"
    drawn = subprocess.run(
        [_binary.find(), "server", "token", "alpha"], capture_output=True, text=True, check=True
    )
    token, line = drawn.stderr, drawn.stdout
    assert token not in line
    command = [_binary.find(), "server", "--check", "--token-file", str(path)]
    path.write_text(token)
    path.chmod(0o644)
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "chmod 600" in refused.stderr
    # A digest may be readable by others, because it does not reveal the token.
    path.write_text(line)
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.stdout == "ok: 1 tenant can run code\n", checked.stderr


def test_batch_reports_exhausted_cpu_time(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--jobs", "1", "--config", _config(tmp_path, "[default]\ncpu_an_hour = '200ms'\n"))
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    answer = server.ask("POST", "/v1/batches", {"tasks": [{"code": burn}, {"code": "1"}, {"code": "2"}]})
    results = [json.loads(line) for line in answer.body.splitlines()]
    assert [result["status"] for result in results] == ["ok", "infrastructure", "infrastructure"]
    assert "CPU time" in results[1]["error"]["message"]
    refused = server.ask("POST", "/v1/batches", {"tasks": [{"code": "1"}]})
    assert refused.status == 429
    assert "CPU time" in refused.json["error"]["message"]


def test_batch_reports_memory_taken_by_sessions(start: Any, tmp_path: pathlib.Path) -> None:
    config = "[default]\nmemory = '300MiB'\nset = ['limits.memory=200MiB']\n"
    server: Server = start("--config", _config(tmp_path, config))
    session = server.ask("POST", "/v1/sessions").json["id"]
    refused = server.ask("POST", "/v1/batches", {"tasks": [{"code": "1"}]})
    assert (refused.status, refused.json["error"]["kind"]) == (429, "quota")
    assert server.ask("DELETE", f"/v1/sessions/{session}").status == 204
    # The tasks of one batch wait for each other.
    answer = server.ask("POST", "/v1/batches", {"tasks": [{"code": "1"}] * 4})
    assert {json.loads(line)["status"] for line in answer.body.splitlines()} == {"ok"}


def test_notebook_cells_are_rate_limited(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _config(tmp_path, "[default]\nrate = 4\n"))
    begun = time.monotonic()
    answer = server.ask("POST", "/run_jupyter", {"cells": ["1"] * 14}).json
    assert (answer["status"], len(answer["cells"])) == ("Success", 14)
    # Eight may start at once.
    assert time.monotonic() - begun > 1


def test_notebooks_take_the_places_of_sessions(start: Any, tokens: pathlib.Path) -> None:
    server: Server = start("--token-file", str(tokens), "--jobs", "2", descriptors=1100)
    while (opened := server.ask("POST", "/v1/sessions", **_as(ALPHA))).status == 201:
        session = f"/v1/sessions/{opened.json['id']}"
    notebook = {"cells": ["1", "2"]}
    refused = server.ask("POST", "/run_jupyter", notebook, **_as(ALPHA))
    assert refused.status == 504
    assert b"descriptors" in refused.body
    assert server.ask("POST", "/run_jupyter", notebook, **_as(BETA)).status == 200
    assert server.ask("DELETE", session, **_as(ALPHA)).status == 204
    for _ in range(3):
        assert server.ask("POST", "/run_jupyter", notebook, **_as(ALPHA)).status == 200
    assert server.ask("POST", "/v1/sessions", **_as(ALPHA)).status == 201


def test_last_free_session_suffices_for_a_fork(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _config(tmp_path, "[default]\nsessions = 2\n"))
    made = server.ask("POST", "/sandboxes", {"templateID": "base"}).json
    fork = f"/sandboxes/{made['sandboxID']}/fork"
    [result] = server.ask("POST", fork).json
    assert "sandbox" in result
    # No session is left for the snapshot that another fork takes.
    assert server.ask("POST", fork).status == 429


def test_refusals_within_answers_count(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _config(tmp_path, "[default]\nsessions = 0\n"))
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "open_session"}}
    accepted = {"Accept": "application/json, text/event-stream", "Content_Type": "application/json"}
    assert server.ask("POST", "/mcp", call, **accepted).json["result"]["isError"]
    server.ask("POST", "/v1/batches", {"tasks": [{"code": "1", "id": 0.5}]})
    counts = server.ask("GET", "/metrics").body.decode()
    for kind in ("quota", "request"):
        assert f'sandfork_refusals_total{{tenant="default",kind="{kind}"}} 1' in counts


def test_processor_time_of_a_command_is_counted_while_it_runs(start: Any) -> None:
    server: Server = start()
    cells = f"/v1/sessions/{server.ask('POST', '/v1/sessions').json['id']}/cells"
    assert server.ask("POST", cells, {"code": BURN}).json["status"] == "ok"

    def counted() -> float:
        [count] = re.findall(
            rb"^sandfork_cpu_seconds_total.* (.*)$", server.ask("GET", "/metrics").body, re.M
        )
        return float(count)

    begun = counted()
    eventually(lambda: counted() > begun + 1)


@pytest.mark.parametrize("text", ["[http]\nbody = '0B'\n", "otlp = 'http://'\n"])
def test_unusable_configuration_is_rejected(tmp_path: pathlib.Path, text: str) -> None:
    command = [_binary.find(), "server", "--check", "--config", _config(tmp_path, text)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done


def test_longest_queue_is_accepted(start: Any) -> None:
    server: Server = start("--queue", str(2**64 - 1))
    assert server.run("1").status == 200

"""Clients that send invalid or too large requests or never read, and guests and servers that end."""

from __future__ import annotations

import http.client
import json
import pathlib
import re
import select
import signal
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ..support.processes import assert_gone, descendants
from ..support.waiting import eventually
from .support import Server


def _raw(server: Server, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(data)
    return connection


def _bounded(directory: pathlib.Path, **bounds: object) -> str:
    path = directory / "server.toml"
    lines = "".join(f"{name} = {value!r}\n" for name, value in bounds.items())
    path.write_text(f"[http]\n{lines}")
    return str(path)


def _answer(connection: socket.socket) -> bytes:
    with connection:
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts)


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/runs HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"b" * 200_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
    ],
)
def test_malformed_request_head_is_rejected(server: Server, head: bytes) -> None:
    try:
        answer = _answer(_raw(server, head))
    except ConnectionResetError:
        answer = b""
    assert answer[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 414", b"HTTP/1.1 431", b"HTTP/1.1 422"), answer
    assert server.run("1").status == 200


def test_bodies_are_bounded_before_they_are_read(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _bounded(tmp_path, body="1MiB", bodies="2MiB", pause="3s"))
    head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    long = _answer(_raw(server, f"{head}Content-Length: 1048577\r\n\r\n".encode()))
    assert long.startswith(b"HTTP/1.1 413")
    assert b"1048576" in long
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    endless = _raw(server, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    try:
        for _ in range(1000):
            endless.sendall(chunk)
    except OSError:
        pass
    endless.close()
    # Three bodies of 1 MiB exceed the memory for bodies, although the clients have sent no byte of theirs.
    slow = [_raw(server, f"{head}Content-Length: 1048576\r\n\r\n".encode()) for _ in range(2)]
    time.sleep(0.2)
    full = server.ask("POST", "/v1/runs", {"code": "#" * 900_000})
    assert full.status in (200, 429)
    for connection in slow:
        assert _answer(connection).startswith(b"HTTP/1.1 408")
    assert server.ask("POST", "/v1/runs", {"code": "#" * 900_000}).status == 200


def test_values_take_more_memory_than_their_text(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _bounded(tmp_path, body="1MiB", bodies="8MiB"))
    # A parsed value takes dozens of bytes, and its text only three.
    empty = b'"",' * 300_000 + b'""'
    for path, body in (
        ("/v1/runs", b'{"code": "1", "args": [' + empty + b"]}"),
        ("/v1/batches", b'{"tasks": [], "common": {"a": [' + empty + b"]}}"),
        ("/sandboxes", b'{"templateID": "base", "more": [' + empty + b"]}"),
        ("/mcp", b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": [' + empty + b"]}"),
    ):
        answer = server.ask("POST", path, body)
        # The body can never fit, so the response does not suggest a retry.
        assert answer.status == 413, path
        assert "retry-after" not in answer.headers
        assert b"http.bodies" in answer.body
    assert server.ask("POST", "/v1/runs", {"code": "#" * 900_000}).status == 200


def _ended(server: Server) -> int:
    """The number of runs and cells that ended without an error."""
    text = server.ask("GET", "/metrics").body.decode()
    found = re.search(r'sandfork_runs_total{.*status="ok"} (\d+)', text)
    return int(found[1]) if found else 0


def test_a_notebook_is_bounded_as_a_whole(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _bounded(tmp_path, body="1MiB", bodies="4MiB"))
    # Each cell stays within its output limit, but the response holds the outputs of all cells.
    many = {"cells": ["print('x' * 1_000_000)"] * 20, "total_timeout": 1000}
    answer = server.ask("POST", "/run_jupyter", many)
    # Clients do not retry after a 413.
    assert answer.status == 413
    assert "http.bodies" in answer.json["detail"]
    assert _ended(server) < 10
    one = {"cells": ["open('a', 'wb').truncate(700_000)"], "fetch_files": ["a", "./a", "././a"]}
    assert list(server.ask("POST", "/run_jupyter", one).json["files"]) == ["a"]


def test_notebook_cells_alternate_with_other_work(start: Any) -> None:
    server: Server = start("--jobs", "1")
    body = json.dumps({"cells": ["import time; time.sleep(0.2)"] * 300, "total_timeout": 1e9})
    head = f"POST /run_jupyter HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with _raw(server, (head + body).encode()) as notebook:
        while not _ended(server):
            time.sleep(0.05)
        assert server.run("1").status == 200
        assert not select.select([notebook], [], [], 0)[0], "the notebook was first"


def _unread(server: Server) -> socket.socket:
    """A client of a stream with much output, which reads none of it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    body = json.dumps({"code": "print(chr(0) * 900_000)"})
    head = f"Host: localhost\r\nAccept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(f"POST /v1/runs HTTP/1.1\r\n{head}{body}".encode())
    return connection


def test_output_that_waits_for_a_client_takes_memory_of_answers(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _bounded(tmp_path, body="1MiB", bodies="4MiB"))
    # An invalid body, which runs nothing.
    body = b"x" * 900_000
    assert server.ask("POST", "/v1/runs", body).status == 422
    # Output in the kernel's socket buffers does not count.
    clients = [_unread(server) for _ in range(8)]
    until = time.monotonic() + 60
    while server.ask("POST", "/v1/runs", body).status != 429:
        assert time.monotonic() < until
    for connection in clients:
        connection.close()
    while server.ask("POST", "/v1/runs", body).status != 422:
        time.sleep(0.05)


def _sandbox(server: Server) -> dict[str, str]:
    """The headers with which E2B's clients send requests to a new sandbox."""
    made = server.ask("POST", "/sandboxes", {"templateID": "base"}).json
    return {"e2b_sandbox_id": made["sandboxID"], "x_access_token": made["envdAccessToken"]}


def test_a_list_takes_memory_of_answers(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _bounded(tmp_path, body="1MiB", bodies="1MiB"))
    code = "for n in range({}): open(f'{{n:0250}}', 'w').close()"
    session = "/v1/sessions/" + server.ask("POST", "/v1/sessions").json["id"]
    own = _sandbox(server)
    for count, status, problem in ((10, 200, None), (4000, 413, "invalid_argument")):
        text = code.format(count)
        assert server.ask("POST", f"{session}/cells", {"code": text}).json["status"] == "ok"
        assert server.ask("GET", f"{session}/directories/.").status == status
        assert server.ask("POST", "/execute", {"code": text}, **own).status == 200
        listed = server.ask("POST", "/filesystem.Filesystem/ListDir", {"path": "/work"}, **own).json
        assert listed.get("code") == problem
        assert problem or len(listed["entries"]) == count


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", {"x" * (1 << 20): 1}),
        ("/v1/batches", {"tasks": [{"id": "x" * (1 << 20)}] * 2}),
        ("/run_code", {"code": "1", "language": "x" * (1 << 20)}),
        ("/sandboxes", {"templateID": "base", "timeout": "x" * (1 << 20)}),
    ],
)
def test_an_error_quotes_no_long_request(server: Server, path: str, body: Any) -> None:
    answer = server.ask("POST", path, body)
    assert answer.status in (400, 422)
    assert len(answer.body) < 16 << 10
    assert b"characters are left out" in answer.body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", {"code": "1", "files": {"x": "A" * (12 << 20)}}),
        ("/v1/runs", {"code": "open('x', 'wb').write(bytes(12 << 20))", "fetch": ["x"]}),
        ("/v1/batches", {"common": {"code": "1", "stdin": "x" * (4 << 20)}, "tasks": [{}] * 8}),
    ],
    ids=["request", "answer", "tasks"],
)
def test_slow_work_blocks_no_serving_thread(
    start: Any, monkeypatch: pytest.MonkeyPatch, path: str, body: Any
) -> None:
    monkeypatch.setenv("TOKIO_WORKER_THREADS", "1")
    server: Server = start()
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task")

    def times() -> dict[int, int]:
        # The user time of each current thread, because sending counts as system time (proc(5)).
        stats = ((int(task.name), (task / "stat").read_text()) for task in tasks.iterdir())
        return {number: int(stat.rpartition(")")[2].split()[11]) for number, stat in stats}

    # No request has arrived yet, so no thread for requests exists.
    named = (task for task in tasks.iterdir() if (task / "comm").read_text().startswith("tokio"))
    (serving,) = (int(task.name) for task in named)
    before = times()
    for _ in range(4):
        answer = server.ask("POST", path, body)
        assert b'"status":"ok"' in answer.body
    used = {number: time - before.get(number, 0) for number, time in times().items()}
    assert used[serving] * 2 < sum(used.values()), used


def test_a_form_has_a_bounded_number_of_parts(start: Any) -> None:
    server: Server = start()
    own = _sandbox(server)
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\r\n'
    kind = {"Content_Type": "multipart/form-data; boundary=b"}
    for count, status in ((10, 200), (5000, 400)):
        answer = server.ask("POST", "/files", part * count + b"--b--\r\n", **kind, **own)
        assert answer.status == status, answer.body


def test_list_of_commands_truncates_long_ones(start: Any) -> None:
    server: Server = start()
    own = _sandbox(server)
    # JSON writes each of these bytes in six.
    arguments = ["-c", "sleep 100", *["\1" * 100_000] * 12]
    text = json.dumps({"process": {"cmd": "/bin/sh", "args": arguments}}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers = {name.replace("_", "-"): value for name, value in own.items()}
    headers["Content-Type"] = "application/connect+json"
    body = struct.pack(">BI", 0, len(text)) + text
    connection.request("POST", "/process.Process/Start", body, headers)
    assert b"start" in connection.getresponse().read1()
    listed = server.ask("POST", "/process.Process/List", {}, **own)
    [process] = listed.json["processes"]
    assert process["config"]["args"][:2] == arguments[:2]
    assert len(listed.body) < 200_000
    connection.close()


def test_invented_http_method_is_not_logged(start: Any) -> None:
    server: Server = start()
    assert server.ask("A" * 60_000, "/v1/runs").status == 405
    server.process.terminate()
    assert server.process.wait(60) == 0
    text = server.log.read_text()
    assert '"method":"other"' in text
    assert "AAAA" not in text


def test_a_picture_for_a_model_takes_memory_of_answers(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _bounded(tmp_path, body="1MiB", bodies="2MiB"))
    code = "class Picture:\n    def _repr_png_(self):\n        return bytes({})\nPicture()"
    kinds = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
    for size in (100, 3 << 20):
        arguments = {"python_code": code.format(size)}
        params = {"name": "run_python_code", "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        result = server.ask("POST", "/mcp", body, **kinds).json["result"]
        assert result["isError"] == ("http.bodies" in result["content"][0]["text"]) == (size > 100)


def _peak(server: Server) -> int:
    """The server's peak memory, in MiB."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found
    return int(found[1]) >> 10


@pytest.mark.parametrize("path", ["/run_jupyter", "/execute", "/v1/sessions"])
def test_json_of_a_guest_takes_no_more_memory_than_its_text(start: Any, path: str) -> None:
    server: Server = start()
    # Parsed, each value of 7 bytes would become an object.
    forms = "{'application/json': '[' + '{\"\":0},' * 500_000 + '0]'}"
    code = f"class Shown:\n    def _repr_mimebundle_(self, **_):\n        return {forms}\nShown()"
    assert server.run("1").status == 200
    before = _peak(server)
    if path == "/run_jupyter":
        answer = server.ask("POST", path, {"cells": [code]})
        shown = answer.json["cells"][0]["display"][0]["application/json"]
    elif path == "/execute":
        made = server.ask("POST", "/sandboxes", {"templateID": "base"}).json
        named = {"E2b_Sandbox_Id": made["sandboxID"], "X_Access_Token": made["envdAccessToken"]}
        answer = server.ask("POST", path, {"code": code}, **named)
        lines = [json.loads(line) for line in answer.body.splitlines()]
        (shown,) = (line["json"] for line in lines if line["type"] == "result")
    else:
        session = server.ask("POST", path).json["id"]
        answer = server.ask("POST", f"{path}/{session}/cells", {"code": code})
        shown = answer.json["displays"][0]["data"]["application/json"]
    assert len(shown) == 500_001
    # The value, the response, and the buffers that hold them.
    assert _peak(server) - before < 100


def test_oversized_request_gets_an_error(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _bounded(tmp_path, body="16MiB", bodies="16MiB"))
    assert server.ask("POST", "/v1/runs", bytes(24 << 20)).status == 413


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        # A page on another port of this machine is also another origin.
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "https://page.example"},
        {"Origin": "null"},
        # The page's own host name, which now resolves to this server (DNS rebinding).
        {"Host": "page.example", "Origin": "http://page.example", "Sec_Fetch_Site": "same-origin"},
    ],
)
def test_a_page_of_another_site_runs_nothing(server: Server, headers: dict[str, str]) -> None:
    # Browsers send this content type without a preflight request.
    headers = {"Content_Type": "text/plain", **headers}
    for path in ("/v1/runs", "/v1/sessions", "/run_code", "/sandboxes", "/mcp"):
        answer = server.ask("POST", path, b'{"code": "1", "templateID": "base"}', **headers)
        assert answer.status == 403, path
    if "Host" in headers:
        for path in ("/", "/v1/sessions", "/metrics"):
            assert server.ask("GET", path, **headers).status == 403, path
    own = {"Origin": server.url, "Sec_Fetch_Site": "same-origin"}
    assert server.ask("POST", "/v1/runs", {"code": "1"}, **own).status == 200


def test_a_slow_head_and_an_idle_connection_are_closed(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _bounded(tmp_path, head="500ms"))
    for data in (b"", b"POST /v1/runs HT"):
        assert _answer(_raw(server, data))[:12] in (b"", b"HTTP/1.1 408")


def test_client_that_never_reads_is_dropped(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _bounded(tmp_path, pause="500ms"))
    connection = socket.socket()
    # A small receive window, so that the kernel buffers little of the response.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    body = b'{"code": "open(\'a\', \'wb\').write(bytes(12 << 20))", "fetch": ["a"]}'
    head = f"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    eventually(lambda: "sandfork_connections 1" in server.ask("GET", "/metrics").body.decode())
    connection.close()


def test_connections_that_no_tenant_uses_make_room(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _bounded(tmp_path, connections=4, head="10min"))
    with server.running("import time; time.sleep(1); print('done')") as response:
        idle = [_raw(server, data) for data in (b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") * 8]
        assert server.run("1").status == 200
        # The connection in use stays open.
        assert b"done" in response.read()
    for connection in idle:
        connection.close()


def test_disconnected_client_cancels_its_run(server: Server) -> None:
    with server.running("import time; time.sleep(25)"):
        pass
    begun = time.monotonic()
    while 'status="interrupted"' not in server.ask("GET", "/metrics").body.decode():
        time.sleep(0.05)
        assert time.monotonic() - begun < 20


def _uploading(server: Server, request: str, **headers: str) -> socket.socket:
    """A request whose body never ends."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = (
        f"{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n{lines}\r\nx"
    )
    return _raw(server, head.encode())


def _sessions(server: Server) -> int:
    [line] = re.findall(rb"^sandfork_sessions (\d+)$", server.ask("GET", "/metrics").body, re.M)
    return int(line)


def test_upload_keeps_no_session_alive(start: Any) -> None:
    server: Server = start()
    closed = server.ask("POST", "/v1/sessions").json["id"]
    idle = server.ask("POST", "/v1/sessions", {"idle": 1}).json["id"]
    uploads = [_uploading(server, f"PUT /v1/sessions/{one}/files/a") for one in (closed, idle)]
    made = server.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 2}).json
    of_sandbox = {"E2b_Sandbox_Id": made["sandboxID"], "X_Access_Token": made["envdAccessToken"]}
    form = {"Content_Type": "multipart/form-data; boundary=x"}
    uploads.append(_uploading(server, "POST /files?path=a", **of_sandbox, **form))
    uploads.append(_uploading(server, f"POST /sandboxes/{made['sandboxID']}/connect"))
    assert server.ask("DELETE", f"/v1/sessions/{closed}").status == 204
    eventually(lambda: _sessions(server) == 0)
    uploads[0].sendall(b"x" * 99)
    assert b" 404 " in _answer(uploads[0]).partition(b"\r\n")[0]
    for upload in uploads:
        upload.close()


def test_a_server_that_is_killed_leaves_nothing(start: Any) -> None:
    server: Server = start()
    server.ask("POST", "/v1/sessions")
    thread = threading.Thread(target=_ignoring, args=(server,))
    thread.start()
    time.sleep(0.3)
    left = descendants(server.process.pid)
    assert left
    server.process.send_signal(signal.SIGKILL)
    thread.join()
    assert_gone(left)


def _ignoring(server: Server) -> None:
    with pytest.raises((OSError, Exception)):
        server.run("import time; time.sleep(60)")


def test_many_clients_lose_nothing(server: Server) -> None:
    def one(number: int) -> bool:
        return server.run(f"print({number} * 1000003)").json["stdout"] == f"{number * 1000003}\n"

    with ThreadPoolExecutor(16) as clients:
        assert all(clients.map(one, range(200)))


def _batch(size: int, tasks: int) -> dict[str, Any]:
    """Tasks that share a file of so many MiB and run long enough to overlap."""
    code = "import time; time.sleep(1); len(open('data').read())"
    common = {"code": code, "files": {"data": "x" * (size << 20)}}
    return {"common": common, "tasks": [{"args": [str(number)]} for number in range(tasks)]}


def test_the_tasks_of_a_batch_take_memory_of_bodies(start: Any, tmp_path: pathlib.Path) -> None:
    bounds = _bounded(tmp_path, body="8MiB", bodies="32MiB")
    server: Server = start("--jobs", "8", "--config", bounds)
    assert server.run("1").status == 200
    before = _peak(server)
    answer = server.ask("POST", "/v1/batches", _batch(5, 8))
    results = [json.loads(line) for line in answer.body.splitlines()]
    # Tasks for which there is no memory wait until there is.
    assert [result.get("value") for result in results] == [5 << 20] * 8, results
    # A run takes additional memory while it starts.
    assert _peak(server) - before < 60
    # The body fits, but the memory that its tasks take in addition never does.
    answer = server.ask("POST", "/v1/batches", _batch(7, 1))
    assert answer.status == 413
    assert "http.bodies" in answer.json["error"]["message"]


def test_batch_without_memory_for_its_tasks_is_refused(start: Any, tmp_path: pathlib.Path) -> None:
    server: Server = start("--config", _bounded(tmp_path, body="8MiB", bodies="32MiB"))
    # Announced bodies keep their memory although they do not arrive.
    head = f"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {8 << 20}\r\n\r\n"
    slow = [_raw(server, head.encode()) for _ in range(2)]
    eventually(lambda: server.ask("POST", "/v1/batches", _batch(4, 1)).status == 429)
    for connection in slow:
        connection.close()
    eventually(lambda: server.ask("POST", "/v1/batches", _batch(4, 1)).status == 200)

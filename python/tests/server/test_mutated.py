"""Nearly valid requests of every protocol. None causes an internal error, and the server keeps serving."""

from __future__ import annotations

import collections
import copy
import http.client
import json
import os
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from .support import Server

# How many requests are tried, and the seed of the random numbers that make them.
_COUNT = int(os.environ.get("SANDFORK_MUTATED", "400"))
_SEED = int(os.environ.get("SANDFORK_MUTATED_SEED", "0"))

_STRANGE: list[Any] = [
    None,
    True,
    0,
    -1,
    1 << 64,
    1e308,
    0.5,
    "",
    "a" * 5000,
    "../../etc/passwd",
    "/",
    "a\0b",
    "a\nb",
    "\ud800",
    "٣",
    "1s",
    [],
    {},
    [[[[[[[[]]]]]]]],
    {"": None},
]


class _Request(NamedTuple):
    method: str
    path: str
    body: Any = None
    #: Whether the request goes to a sandbox, as those of E2B's data plane do.
    in_sandbox: bool = False


def _requests(session: str, sandbox: str) -> list[_Request]:
    def rpc(call: str, body: Any) -> _Request:
        return _Request("POST", f"/{call}", body, in_sandbox=True)

    tool = {"name": "read_file", "arguments": {"session": session, "path": "a"}}
    entry = {"path": "/home/user/a"}
    return [
        _Request(
            "POST",
            "/v1/runs",
            {"code": "1", "args": ["a"], "stdin": "b", "files": {"c": "ZA=="}, "fetch": ["c"]},
        ),
        _Request("POST", "/v1/runs", {"program": ["true"], "limits": {"wall": "1s", "memory": "64MiB"}}),
        _Request(
            "POST", "/v1/batches", {"common": {"code": "1"}, "tasks": [{"expect": {"stdout": "2"}, "id": 1}]}
        ),
        _Request("POST", f"/v1/sessions/{session}/cells", {"code": "1", "timeout": "1s"}),
        _Request("GET", f"/v1/sessions/{session}/files/a"),
        _Request("PUT", f"/v1/sessions/{session}/files/a/b", b"text"),
        _Request("GET", f"/v1/sessions/{session}/directories/a"),
        _Request(
            "POST", "/run_code", {"code": "1", "language": "python", "files": {"a": "YQ=="}, "run_timeout": 1}
        ),
        _Request("POST", "/run_jupyter", {"cells": ["1"], "cell_timeout": 1, "fetch_files": ["a"]}),
        _Request("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool}),
        _Request("POST", f"/sandboxes/{sandbox}/timeout", {"timeout": 60}),
        _Request("GET", "/v2/sandboxes?limit=1&state=running&metadata=a%3Db"),
        _Request(
            "POST", "/execute", {"code": "1", "env_vars": {"A": "b"}, "context_id": None}, in_sandbox=True
        ),
        _Request("POST", "/contexts", {"cwd": "/home/user", "language": "python"}, in_sandbox=True),
        _Request("GET", "/files?path=a&username=user", in_sandbox=True),
        rpc("filesystem.Filesystem/Stat", entry),
        rpc("filesystem.Filesystem/MakeDir", entry),
        rpc("filesystem.Filesystem/Move", {"source": "a", "destination": "b"}),
        rpc("filesystem.Filesystem/ListDir", {**entry, "depth": 2}),
        rpc("filesystem.Filesystem/CreateWatcher", {**entry, "recursive": True}),
        rpc("process.Process/List", {}),
        rpc("process.Process/SendSignal", {"process": {"pid": 7}, "signal": "SIGNAL_SIGKILL"}),
        rpc("process.Process/SendInput", {"process": {"pid": 7}, "input": {"stdin": "YQ=="}}),
    ]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in a JSON value, with each of its keys."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _mutated(body: Any, draw: random.Random) -> bytes:
    if isinstance(body, bytes):
        return body
    body = copy.deepcopy(body)
    places = list(_places(body))
    for _ in range(draw.choice((0, 1, 1, 2))):
        container, key = draw.choice(places) if places else ({}, "a")
        if isinstance(container, dict) and draw.random() < 0.2:
            container.pop(key, None)
            container[draw.choice(("more", key * 2, "", "é"))] = draw.choice(_STRANGE)
        elif not isinstance(container, dict) or key in container:
            container[key] = draw.choice(_STRANGE)
    text = bytearray(json.dumps(body).encode())
    if text and draw.random() < 0.3:
        for _ in range(draw.randint(1, 4)):
            text[draw.randrange(len(text))] = draw.randrange(256)
    if draw.random() < 0.1:
        del text[draw.randrange(len(text) + 1) :]
    return bytes(text)


def _mutated_path(path: str, draw: random.Random) -> str:
    if draw.random() < 0.8:
        return path
    at = draw.randrange(1, len(path) + 1)
    return (
        path[:at] + draw.choice(("%00", "%2e%2e%2f", "//", "..%2f", "%ff", "?", "&a", "x" * 300)) + path[at:]
    )


def test_almost_valid_request_gets_a_response(server: Server) -> None:
    draw = random.Random(_SEED)
    session = server.ask("POST", "/v1/sessions", {}).json["id"]
    made = server.ask("POST", "/sandboxes", {"templateID": "base"}).json
    in_sandbox = {"E2B_Sandbox_Id": made["sandboxID"], "X_Access_Token": made["envdAccessToken"]}
    statuses: collections.Counter[int] = collections.Counter()
    for number in range(_COUNT):
        request = draw.choice(_requests(session, made["sandboxID"]))
        body = None if request.body is None else _mutated(request.body, draw)
        headers = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
        path = _mutated_path(request.path, draw)
        what = f"{number} of seed {_SEED}: {request.method} {path} {body!r}"
        try:
            answer = server.ask(
                request.method, path, body, **headers, **(in_sandbox if request.in_sandbox else {})
            )
        except http.client.HTTPException as error:
            raise AssertionError(what) from error
        statuses[answer.status] += 1
        text = answer.body.decode(errors="replace")
        # 501: the protocol defines the request, and Sandfork does not implement it.
        assert answer.status < 500 or answer.status == 501, f"{what}: {answer.status} {text}"
    # Some requests are valid, and most are not.
    assert 0 < statuses[200] < _COUNT / 2, statuses
    assert server.run("print(6 * 7)").json["stdout"] == "42\n"
    assert server.ask("POST", f"/v1/sessions/{session}/cells", {"code": "6 * 7"}).status == 200

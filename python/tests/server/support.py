"""Requests to a server, with the standard library."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server(NamedTuple):
    process: subprocess.Popen[str]
    port: int
    # The server's standard error.
    log: pathlib.Path = pathlib.Path(os.devnull)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Sends a request. A body that is not bytes is sent as JSON, and `_` in a header is a `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    @contextlib.contextmanager
    def running(self, code: str) -> Iterator[http.client.HTTPResponse]:
        """A run that has started: it has printed a line before this code. At the end of the block, the client
        disconnects."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = json.dumps({"code": f"print('begun', flush=True)\n{code}"})
        connection.request("POST", "/v1/runs", body, {"Accept": "text/event-stream"})
        # The head of the response arrives with the first output.
        response = connection.getresponse()
        assert response.status == 200
        yield response
        response.close()
        connection.close()

    def run(self, code: str, **more: Any) -> Answer:
        return self.ask("POST", "/v1/runs", {"code": code, **more})

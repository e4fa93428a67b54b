"""Opens many sandboxes of E2B's protocol at once, runs code in each, and prints what that takes.

    cargo build --release --workspace
    python python/benches/e2b_sessions.py target/release/sandfork-server --sessions 1000

Fails if a sandbox cannot be made, or one has not its own variables.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any, Callable

CLIENTS = 16
CONFIGURATION = """\
listen = "127.0.0.1:0"
[default]
sessions = {sessions}
"""


@contextlib.contextmanager
def serving(program: str, sessions: int) -> Iterator[tuple[int, int]]:
    """A server: its process and its port."""
    with tempfile.TemporaryDirectory() as directory:
        config = pathlib.Path(directory, "server.toml")
        config.write_text(CONFIGURATION.format(sessions=sessions))
        environ = {**os.environ, "SANDFORK_LOG": "off"}
        command = [program, "--config", str(config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as server:
            assert server.stdout is not None
            try:
                yield server.pid, int(server.stdout.readline().rsplit(":", 1)[1])
            finally:
                server.terminate()


class Client:
    """Asks the server, over one connection for each thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._of_thread = threading.local()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> bytes:
        connection = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = self._of_thread.connection = HTTPConnection("127.0.0.1", self._port, timeout=600)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, None if body is None else json.dumps(body), named)
        response = connection.getresponse()
        data: bytes = response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {data.decode()}")
        return data

    def open(self, number: int) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self.ask("POST", "/sandboxes", {"templateID": "base"}))
        self.execute(made, f"x = {number}")
        return made

    def execute(self, sandbox: dict[str, Any], code: str) -> list[Any]:
        headers = {"E2b_Sandbox_Id": sandbox["sandboxID"], "X_Access_Token": sandbox["envdAccessToken"]}
        answer = self.ask("POST", "/execute", {"code": code}, **headers)
        return [json.loads(line) for line in answer.splitlines()]

    def check(self, number: int, sandbox: dict[str, Any]) -> None:
        events = self.execute(sandbox, "x")
        found = [event["text"] for event in events if event["type"] == "result"]
        if found != [str(number)]:
            raise SystemExit(f"sandbox {number} has {events}")

    def close(self, sandbox: dict[str, Any]) -> None:
        self.ask("DELETE", f"/sandboxes/{sandbox['sandboxID']}")


def used(pid: int) -> str:
    """Memory of the server and all that it started, each page once, and what the server itself has."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = pathlib.Path("/proc", entry, "stat").read_text()
                children.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry))
    tree = [pid]
    for parent in tree:
        tree.extend(children.get(parent, []))
    total = 0
    for member in tree:
        with contextlib.suppress(OSError, IndexError):
            rollup = pathlib.Path(f"/proc/{member}/smaps_rollup").read_text()
            total += int(rollup.split("\nPss:")[1].split()[0]) << 10
    threads = len(os.listdir(f"/proc/{pid}/task"))
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    own = f"{threads} threads and {descriptors} descriptors of the server"
    return f"{total >> 20} MiB in {len(tree)} processes, {own}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server")
    parser.add_argument("--sessions", type=int, default=1000)
    arguments = parser.parse_args()
    sessions: int = arguments.sessions
    with serving(arguments.server, sessions) as (pid, port), ThreadPoolExecutor(CLIENTS) as pool:
        client = Client(port)

        def timed(what: str, act: Callable[..., Any], *over: Any) -> list[Any]:
            begun = time.perf_counter()
            done = list(pool.map(act, *over))
            seconds = time.perf_counter() - begun
            print(f"{what:<28}{seconds:8.1f} s {sessions / seconds:8.0f} a second", flush=True)
            return done

        opened = timed("opened, a cell in each", client.open, range(sessions))
        print(used(pid))
        timed("another cell in each", client.check, range(sessions), opened)
        timed("closed", client.close, opened)


if __name__ == "__main__":
    main()

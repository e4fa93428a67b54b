"""A supervisor for tests. It speaks the caller link and runs Python code in its own process, without a
sandbox. A test may answer a cell itself instead."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable

from sandfork import _values

from .wire import Received, Wire, passed_file

ENFORCED = {"level": "full", "layers": ["namespaces", "seccomp"]}
POLICY = {"name": "standard", "sha256": "0" * 64}
LIMITS = {"limits.wall": 30.0, "limits.memory": float(64 << 20), "limits.output": float(1 << 20)}
USAGE = {
    "wall_ms": 1.5,
    "cpu_ms": 1.0,
    "peak_memory_bytes": 1 << 20,
    "peak_pids": 1,
    "written_bytes": 0,
    "output_bytes": 0,
}

Handler = Callable[["FakeSession", Received], None]


class FakeSession:
    """One connection."""

    def __init__(self, fake: FakeSupervisor, connected: socket.socket) -> None:
        self.fake = fake
        self.wire = Wire(connected)
        self.heard: list[dict[str, Any]] = []
        self.interrupted = threading.Event()
        self.returns: queue.Queue[Received] = queue.Queue()
        self.requests: queue.Queue[Received | None] = queue.Queue()
        self.work = Path(tempfile.mkdtemp(prefix="fake-session-"))
        self.cells = 0
        self.calls = 0
        self.alive = True
        self.globals: dict[str, Any] = {}

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            while True:
                request = self.requests.get()
                if request is None:
                    return
                self._answer(request)
        finally:
            # `shutdown` comes before `close`, because the listening thread still holds the socket open.
            with contextlib.suppress(OSError):
                self.wire.socket.shutdown(socket.SHUT_RDWR)
            self.wire.socket.close()

    def _listen(self) -> None:
        while True:
            received = self.wire.receive()
            if received is None:
                self.interrupted.set()
                self.requests.put(None)
                return
            self.heard.append(received.header)
            kind = received.header["kind"]
            if kind == "interrupt":
                self.interrupted.set()
            elif kind == "return":
                self.returns.put(received)
            else:
                if kind == "cell":
                    # Cleared here, because the cell's interrupt may arrive before the cell starts.
                    self.interrupted.clear()
                self.requests.put(received)

    def _answer(self, request: Received) -> None:
        header = request.header
        kind = header["kind"]
        handler = self.fake.handlers.get(request.payload.decode() if kind == "cell" else kind)
        if kind == "cell":
            self.cells += 1
        if not self.alive and kind not in ("restart", "close"):
            self.error("session-ended", "the session has ended: its worker is gone", header["id"])
        elif handler is not None:
            handler(self, request)
        else:
            getattr(self, f"_{kind}")(request)

    # Messages to the client.

    def opened(self, **fields: Any) -> None:
        python = {"executable": "/usr/bin/python3", "version": "3.11.2", "environment": "/usr"}
        common = {"version": 2, "enforced": ENFORCED, "policy": POLICY, "python": python}
        self.wire.send({"kind": "opened", **common, "limits": LIMITS, **fields})

    def output(self, text: str | bytes, *, stream: str = "stdout") -> None:
        data = text.encode() if isinstance(text, str) else text
        self.wire.send({"kind": "output", "id": 0, "stream": stream}, data)

    def display(self, data: dict[str, Any], *, main: bool = False) -> None:
        encoder = _values.Encoder()
        trees = {name: encoder.encode(form) for name, form in data.items()}
        self._send_with(encoder, {"kind": "display", "id": 0, "data": trees, "main": main})

    def call(self, tool: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a host tool as guest code does. Returns its value, or raises its reported error."""
        self.calls += 1
        encoder = _values.Encoder()
        trees = [encoder.encode(value) for value in args]
        named = {name: encoder.encode(value) for name, value in kwargs.items()}
        header = {"kind": "call", "id": 0, "call": self.calls, "tool": tool, "args": trees, "kwargs": named}
        self._send_with(encoder, header)
        answer = self.returns.get(timeout=60)
        assert answer.header["call"] == self.calls
        error = answer.header.get("error")
        if error is not None:
            raise GuestError(error["name"], error["message"])
        return _values.decode(answer.header.get("value"), buffers_of(answer))

    def outcome(self, request: Received, **fields: Any) -> None:
        """Sends the end of a cell. `value` is encoded. Fields of the inner object are keyword arguments."""
        inner = {
            "status": fields.pop("status", "ok"),
            "exit_code": fields.pop("exit_code", 0),
            "limit": fields.pop("limit", None),
            "error": fields.pop("error", None),
            "usage": USAGE,
            "denied": fields.pop("denied", []),
        }
        encoder = _values.Encoder()
        header = {
            "kind": "outcome",
            "id": request.header["id"],
            "outcome": inner,
            "value": encoder.encode(fields.pop("value", None)),
            "final": False,
            "session": "live",
            "execution_count": self.cells,
            **fields,
        }
        self.alive = header["session"] == "live"
        self._send_with(encoder, header)

    def error(self, word: str, message: str, number: int | None = None, **fields: Any) -> None:
        header = {"kind": "error", "error": word, "message": message, **fields}
        self.wire.send(header if number is None else {**header, "id": number})

    def _send_with(self, encoder: _values.Encoder, header: dict[str, Any]) -> None:
        if not encoder.buffers:
            self.wire.send(header)
            return
        content = b"".join(map(bytes, _values.pieces(encoder.buffers)))
        blob: dict[str, Any] = {"lengths": [len(buffer) for buffer in encoder.buffers]}
        if len(content) <= _values.SHARED:
            self.wire.send({**header, "blob": blob}, content)
            return
        descriptor = passed_file(content)
        self.wire.send({**header, "blob": {**blob, "passed": True}}, b"", (descriptor,))
        os.close(descriptor)

    # The default answers.

    def _open(self, request: Received) -> None:
        for descriptor in request.descriptors:
            with open(descriptor, "rb") as file:
                self.globals["stdin"] = file.read().decode()
        self.opened()

    def _restart(self, request: Received) -> None:
        self.alive, self.globals, self.cells = True, {}, 0
        self.opened(id=request.header["id"])

    def _close(self, request: Received) -> None:
        self.wire.send({"kind": "closed"})

    def _set(self, request: Received) -> None:
        decoder = _values.Decoder(buffers_of(request))
        for name, tree in request.header["variables"]:
            self.globals[name] = decoder.decode(tree)
        self.outcome(request)

    def _tools(self, request: Received) -> None:
        for tool in request.header["tools"]:
            self.globals[tool["name"]] = self._tool(tool["name"])
        self.outcome(request)

    def _tool(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.call(name, *args, **kwargs)

    def _cell(self, request: Received) -> None:
        self.globals.update(print=lambda *words: self.output(" ".join(map(str, words)) + "\n"))
        try:
            value = _run(request.payload.decode(), self.globals)
        except Exception as error:
            name = error.name if isinstance(error, GuestError) else type(error).__name__
            fields = {"name": name, "message": str(error), "traceback": f"Traceback\n{name}: {error}\n"}
            self.outcome(request, status="exception", exit_code=1, error=fields)
        else:
            self.outcome(request, value=value)

    def _file(self, request: Received) -> None:
        header = request.header
        path = self.work / header["path"]
        try:
            fields, descriptors = getattr(self, f"_file_{header['op']}")(path, header)
        except OSError as error:
            number = error.errno or 0
            message = f"`{header['path']}` cannot be used: {os.strerror(number)}"
            self.error("file", message, header["id"], errno=number)
            return
        self.wire.send({"kind": "file", "id": header["id"], **fields}, b"", descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def _file_open_read(self, path: Path, header: dict[str, Any]) -> Any:
        descriptor = os.open(path, os.O_RDONLY)
        return {"size": os.fstat(descriptor).st_size}, (descriptor,)

    def _file_open_write(self, path: Path, header: dict[str, Any]) -> Any:
        mode = os.O_APPEND if header["append"] else os.O_TRUNC
        return {}, (os.open(path, os.O_WRONLY | os.O_CREAT | mode),)

    def _file_list(self, path: Path, header: dict[str, Any]) -> Any:
        return {"entries": [_entry(child) for child in path.iterdir()]}, ()

    def _file_stat(self, path: Path, header: dict[str, Any]) -> Any:
        return {"entry": _entry(path)}, ()

    def _file_remove(self, path: Path, header: dict[str, Any]) -> Any:
        if header["recursive"]:
            shutil.rmtree(path)
        else:
            path.unlink()
        return {}, ()

    def _file_make_dir(self, path: Path, header: dict[str, Any]) -> Any:
        path.mkdir(parents=header["parents"], exist_ok=header["parents"])
        return {}, ()


class GuestError(Exception):
    """The error that guest code sees for a failed tool."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def ends_when_interrupted(session: FakeSession, cell: Received) -> None:
    """A cell that runs until it is interrupted."""
    assert session.interrupted.wait(60)
    session.outcome(cell, status="interrupted")


class FakeSupervisor:
    """Serves connections, each in its own thread."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        """Handlers by the source of a cell, or by the kind of another request."""
        self.sessions: list[FakeSession] = []

    def on(self, source: str, handler: Handler) -> None:
        self.handlers[source] = handler

    def attach(self, connected: socket.socket) -> None:
        session = FakeSession(self, connected)
        self.sessions.append(session)
        threading.Thread(target=session.serve, daemon=True).start()

    def close(self) -> None:
        for session in self.sessions:
            with contextlib.suppress(OSError):
                session.wire.socket.shutdown(socket.SHUT_RDWR)
            # Here, because it opens descriptors, which a thread could do in the middle of a later test.
            shutil.rmtree(session.work, ignore_errors=True)

    @property
    def session(self) -> FakeSession:
        """The only connection."""
        (session,) = self.sessions
        return session


def buffers_of(received: Received) -> list[memoryview]:
    blob = received.header.get("blob")
    if blob is None:
        return []
    content = received.payload
    for descriptor in received.descriptors:
        with open(descriptor, "rb") as file:
            content = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
    return _values.split(memoryview(content), blob["lengths"])


def _run(source: str, namespace: dict[str, Any]) -> Any:
    try:
        code = compile(source, "<cell>", "eval")
    except SyntaxError:
        exec(compile(source, "<cell>", "exec"), namespace)
        return None
    return eval(code, namespace)


def _entry(path: Path) -> dict[str, Any]:
    found = path.lstat()
    kind = "symlink" if path.is_symlink() else "dir" if path.is_dir() else "file"
    return {"name": path.name, "type": kind, "size": found.st_size, "modified": found.st_mtime}

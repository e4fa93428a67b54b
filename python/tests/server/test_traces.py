"""A server that sends spans to a collector."""

from __future__ import annotations

import contextlib
import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sandfork import _binary

from .support import Server

_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
_CLIENT = "00f067aa0ba902b7"


@contextlib.contextmanager
def _collector(status: int) -> Iterator[tuple[str, list[Any]]]:
    """The address of a collector that answers with this status, and the spans that it received."""
    spans: list[Any] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            batch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/traces"
            for resource in batch["resourceSpans"]:
                spans.extend(span for scope in resource["scopeSpans"] for span in scope["spans"])
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", spans
        server.shutdown()
        thread.join()


@pytest.fixture
def json_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")


def _ended(server: Server) -> str:
    """Stops a server, which then sends its remaining spans, and returns its log."""
    server.process.terminate()
    assert server.process.wait(60) == 0
    return server.log.read_text()


@pytest.mark.usefixtures("json_spans")
def test_a_run_and_its_phases_are_in_the_clients_trace(start: Any) -> None:
    with _collector(200) as (address, spans):
        server: Server = start("--otlp", address)
        server.ask("POST", "/v1/runs", {"code": "1 / 0"}, traceparent=f"00-{_TRACE}-{_CLIENT}-01")
        _ended(server)
    assert {span["traceId"] for span in spans} == {_TRACE}
    named = {span["name"]: span for span in spans}
    answer, run, code = named["POST /v1/runs"], named["run"], named["code"]
    assert answer["parentSpanId"] == _CLIENT
    assert run["parentSpanId"] == answer["spanId"]
    assert code["parentSpanId"] == run["spanId"]
    assert {"key": "sandfork.status", "value": {"stringValue": "exception"}} in run["attributes"]
    assert {"key": "sandfork.tenant", "value": {"stringValue": "default"}} in answer["attributes"]
    # Each span starts and ends within its parent.
    begins = [int(span["startTimeUnixNano"]) for span in (answer, run, code)]
    ends = [int(span["endTimeUnixNano"]) for span in (code, run, answer)]
    assert begins + ends == sorted(begins + ends)


@pytest.mark.usefixtures("json_spans")
def test_cells_of_each_protocol_have_spans(start: Any) -> None:
    with _collector(200) as (address, spans):
        server: Server = start("--otlp", address)
        session = server.ask("POST", "/v1/sessions", {}).json["id"]
        server.ask("POST", f"/v1/sessions/{session}/cells", {"code": "1"})
        server.ask("POST", "/run_code", {"code": "print(1)"})
        call = {"name": "run_python_code", "arguments": {"python_code": "1"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        accept = "application/json, text/event-stream"
        server.ask("POST", "/mcp", message, Content_Type="application/json", Accept=accept)
        # The log has one line for each response; the MCP library adds none.
        assert "rmcp" not in _ended(server)
    routes = {span["spanId"]: span["name"] for span in spans}
    within = {routes.get(span["parentSpanId"]) for span in spans if span["name"] == "run"}
    assert within == {"POST /v1/sessions/{id}/cells", "POST /run_code", "POST /mcp"}


@pytest.mark.usefixtures("json_spans")
def test_unavailable_collector_delays_no_run(start: Any) -> None:
    def reason(address: str) -> str:
        server: Server = start("--otlp", address)
        assert server.run("print(1)").json["status"] == "ok"
        log = _ended(server)
        _, found, rest = log.partition(f"traces are lost until {address}/v1/traces takes them: ")
        assert found, log
        return rest.partition('"')[0]

    with _collector(503) as (address, spans):
        assert "503" in reason(address)
        assert spans
    assert "503" not in reason(address)


def test_invalid_collector_is_named() -> None:
    command = [_binary.find(), "server", "--check", "--otlp", "https://collector.example"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "https://collector.example" in done.stderr
    assert "http://127.0.0.1:4318" in done.stderr


@pytest.mark.parametrize(("protocol", "kind"), [(None, "x-protobuf"), ("http/json", "json")])
def test_default_otlp_encoding_is_protobuf(
    start: Any, monkeypatch: pytest.MonkeyPatch, protocol: str | None, kind: str
) -> None:
    kinds = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            kinds.append(self.headers["Content-Type"])
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

    if protocol:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        for disabled in ("true", "false"):
            monkeypatch.setenv("OTEL_SDK_DISABLED", disabled)
            server: Server = start("--otlp", f"http://127.0.0.1:{collector.server_port}")
            server.run("1")
            _ended(server)
            assert bool(kinds) == (disabled == "false")
        collector.shutdown()
        thread.join()
    assert set(kinds) == {f"application/{kind}"}


def test_unsupported_protocol_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    command = [_binary.find(), "server", "--listen", "127.0.0.1:0", "--otlp", "http://127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "http/protobuf" in done.stderr


@pytest.mark.parametrize("collector", ["http://", "127.0.0.1:4318", "http:///v1"])
def test_an_address_without_a_host_is_refused(collector: str) -> None:
    command = [_binary.find(), "server", "--check", "--otlp", collector]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done

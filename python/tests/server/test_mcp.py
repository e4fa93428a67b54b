"""The Model Context Protocol, by its own client, over the standard streams and over HTTP."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest

from sandfork import _binary

from .support import Server

if sys.version_info < (3, 11):
    pytest.skip("the client is tested with Python 3.11 and later", allow_module_level=True)

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def test_standard_streams_are_for_the_default_tenant(real: None, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text("[tenants.admin]\nset = ['limits.output=10B']\n")
    arguments = ["mcp", "--config", str(config)]
    async with Client(stdio_client(StdioServerParameters(command=_binary.find(), args=arguments))) as client:
        result = await client.call_tool("run_python_code", {"python_code": "print('x' * 100)"})
        assert "<status>ok</status>" in _text(result)


async def test_a_session_keeps_variables_and_files(client: Client) -> None:
    async with client:
        opened = _text(await client.call_tool("open_session", {}))
        session = {"session": opened.split()[1].rstrip(",")}
        await client.call_tool("write_file", {**session, "path": "in/a.txt", "text": "é" * 30_000})
        code = "x = open('in/a.txt').read(); len(x)"
        result = await client.call_tool("run_cell", {**session, "python_code": code})
        assert "30000" in _text(result)
        result = await client.call_tool("run_cell", {**session, "python_code": "x[0]"})
        assert "<return_value>\né\n" in _text(result)
        assert _text(await client.call_tool("list_files", {**session, "path": "in"})) == "file 60000 a.txt"
        read = _text(await client.call_tool("read_file", {**session, "path": "in/a.txt"}))
        assert "[10000 characters are left out]" in read
        outside = await client.call_tool("read_file", {**session, "path": "/etc/passwd"})
        assert outside.is_error
        fork = _text(await client.call_tool("fork_session", session)).split()[1].rstrip(",")
        dropped = {"session": fork, "python_code": "old, x = x, 1; len(old)"}
        assert "30000" in _text(await client.call_tool("run_cell", dropped))
        result = await client.call_tool("run_cell", {**session, "python_code": "len(x)"})
        assert "30000" in _text(result)
        assert _text(await client.call_tool("close_session", session)) == "the session is closed"
        assert (await client.call_tool("run_cell", {**session, "python_code": "1"})).is_error


async def test_a_picture_is_an_image(client: Client) -> None:
    async with client:
        code = (
            "class Picture:\n    def _repr_png_(self):\n        return b'\\x89PNG\\r\\n\\x1a\\n'\nPicture()"
        )
        result = await client.call_tool("run_python_code", {"python_code": code})
        kinds = [(block.type, getattr(block, "mime_type", "")) for block in result.content]
        assert ("image", "image/png") in kinds


async def test_every_tool_says_what_it_takes(client: Client) -> None:
    async with client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools][:2] == ["run_python_code", "open_session"]
        assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)


async def test_a_session_is_its_tenant_s_alone(start: Any, tmp_path: pathlib.Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_text(f"alpha {'a' * 32}\nbeta {'b' * 32}\n")
    server: Server = start("--token-file", str(tokens))

    async def call(token: str, name: str, arguments: dict[str, str]) -> str:
        headers = {"Authorization": f"Bearer {token * 32}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
        ):
            return _text(await client.call_tool(name, arguments))

    opened = await call("a", "open_session", {})
    arguments = {"session": opened.split()[1].rstrip(","), "python_code": "1"}
    assert await call("b", "run_cell", arguments) == "there is no such session"
    assert "<return_value>" in await call("a", "run_cell", arguments)
    assert server.ask("POST", "/mcp", {}).status == 401


def test_a_page_of_another_host_is_refused(server: Server) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    kinds = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
    assert server.ask("POST", "/mcp", body, **kinds, Origin="http://evil.example").status == 403
    assert server.ask("POST", "/mcp", body, **kinds, Host="evil.example").status == 403

"""E2B's protocol, with its own clients: `e2b` and `e2b-code-interpreter`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import re
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ..support.waiting import eventually
from .conftest import serving
from .support import Server

if sys.version_info < (3, 11):
    pytest.skip("the client is tested with Python 3.11 and later", allow_module_level=True)

from e2b import (
    CommandExitException,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    RateLimitException,
    SandboxException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)
from e2b.exceptions import AuthenticationException, SandboxNotFoundException, SandboxNotRunningException
from e2b_code_interpreter import AsyncSandbox, Sandbox

ALPHA, BETA = "a" * 32, "b" * 32


@pytest.fixture(scope="module")
def served(real: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two tenants, of which `beta` may have two sessions and connect to a host."""
    directory = tmp_path_factory.mktemp("e2b")
    tokens = directory / "tokens"
    tokens.touch(0o600)
    tokens.write_text(f"alpha {ALPHA}\nbeta {BETA}\n")
    config = directory / "server.toml"
    config.write_text("token_file = 'tokens'\n[tenants.beta]\nsessions = 2\nset = ['limits.wall=1s']\n")
    with serving("--config", str(config)) as server:
        yield server


def options(server: Server, token: str = ALPHA) -> dict[str, Any]:
    return {"api_key": token, "api_url": server.url, "sandbox_url": server.url, "retries": 0}


@contextlib.contextmanager
def made(server: Server, token: str = ALPHA, **more: Any) -> Iterator[Sandbox]:
    sandbox = Sandbox.create(**more, **options(server, token))
    try:
        yield sandbox
    finally:
        sandbox.kill()


@pytest.fixture(scope="module")
def sandbox(served: Server) -> Iterator[Sandbox]:
    with made(served, envs={"PLACE": "the sandbox"}) as sandbox:
        yield sandbox


def data(sandbox: Sandbox, port: int = 49999) -> dict[str, str]:
    """The headers for requests to a sandbox."""
    token = sandbox.traffic_access_token
    assert token is not None
    return {
        "E2b_Sandbox_Id": sandbox.sandbox_id,
        "E2b_Sandbox_Port": str(port),
        "E2B_Traffic_Access_Token": token,
    }


# The code interpreter.


def test_a_cell_has_its_value_and_output(sandbox: Sandbox) -> None:
    seen: list[Any] = []
    execution = sandbox.run_code(
        "import sys\nprint('é')\nprint('oops', file=sys.stderr)\nx = 6 * 7\nx",
        on_stdout=lambda message: seen.append((message.line, message.error)),
        on_stderr=lambda message: seen.append((message.line, message.error)),
        on_result=lambda result: seen.append(result.text),
    )
    assert execution.text == "42"
    assert execution.results[0].is_main_result
    assert ("".join(execution.logs.stdout), "".join(execution.logs.stderr)) == ("é\n", "oops\n")
    assert sorted(seen[:2]) == [("oops\n", True), ("é\n", False)]
    assert seen[2:] == ["42"]
    assert execution.error is None
    again = sandbox.run_code("x + 1")
    assert again.text == "43"
    assert again.execution_count == execution.execution_count + 1


def test_output_arrives_while_a_cell_runs(sandbox: Sandbox) -> None:
    texts: list[str] = []

    def on_stdout(message: Any) -> None:
        texts.append(message.line)
        # The cell continues once its first output has arrived.
        sandbox.commands.run("touch heard")

    code = (
        "import os, time\nprint(0, flush=True)\nwhile not os.path.exists('heard'): time.sleep(0.01)\nprint(1)"
    )
    execution = sandbox.run_code(code, on_stdout=on_stdout)
    assert texts == execution.logs.stdout == ["0\n", "1\n"]


def test_an_exception_is_an_error(sandbox: Sandbox) -> None:
    errors: list[Any] = []
    execution = sandbox.run_code("def f():\n    return 1 / 0\nf()", on_error=errors.append)
    assert execution.error is not None
    assert (execution.error.name, execution.error.value) == ("ZeroDivisionError", "division by zero")
    assert "in f" in execution.error.traceback
    assert errors == [execution.error]
    assert sandbox.run_code("def f(:").error.name == "SyntaxError"


def test_each_kind_of_a_result_has_its_field(sandbox: Sandbox) -> None:
    code = """
class Rich:
    def _repr_html_(self): return "<b>x</b>"
    def _repr_markdown_(self): return "*x*"
    def _repr_svg_(self): return "<svg/>"
    def _repr_png_(self): return b"\\x89PNG"
    def _repr_pdf_(self): return b"%PDF"
    def _repr_latex_(self): return "$x$"
    def _repr_json_(self): return {"a": [1]}
    def _repr_javascript_(self): return "x()"
    def __repr__(self): return "Rich"
chart = {"type": "line", "title": "t", "elements": [{"label": "l", "points": [[1, 2]]}], "x_label": "x",
         "y_label": "y", "x_unit": None, "y_unit": None, "x_ticks": [], "x_tick_labels": [],
         "x_scale": "linear", "y_ticks": [], "y_tick_labels": [], "y_scale": "linear"}
display({"e2b/chart": chart, "text/x-mine": "m"}, raw=True)
Rich()
"""
    chart, rich = sandbox.run_code(code).results
    assert chart.chart is not None
    assert (chart.chart.title, chart.chart.elements[0].points) == ("t", [(1, 2)])
    assert chart.extra == {"text/x-mine": "m"}
    assert not chart.is_main_result
    assert (rich.text, rich.html, rich.markdown, rich.svg) == ("Rich", "<b>x</b>", "*x*", "<svg/>")
    assert (rich.png, rich.pdf, rich.latex) == ("iVBORw==", "JVBERg==", "$x$")
    assert (rich.json, rich.javascript, rich.is_main_result) == ({"a": [1]}, "x()", True)


def test_environment_variables_apply_to_a_cell_or_sandbox(sandbox: Sandbox) -> None:
    ask = "import os; [os.environ.get(name) for name in ('PLACE', 'MORE')]"
    assert sandbox.run_code(ask).text == "['the sandbox', None]"
    envs = {"PLACE": 'the cell\'s "own"\n', "MORE": "é"}
    assert sandbox.run_code(ask, envs=envs).text == repr(['the cell\'s "own"\n', "é"])
    assert sandbox.run_code(ask).text == "['the sandbox', None]"
    with pytest.raises(SandboxException, match="400"):
        sandbox.run_code("1", envs={"a=b": "c"})


def test_cell_of_a_disconnected_client_is_interrupted(sandbox: Sandbox) -> None:
    with pytest.raises(TimeoutException):
        sandbox.run_code("import time\nwhile True: time.sleep(0.1)", timeout=0.5)
    # If the first cell were still running, this one would wait for it, for up to the policy's 30 s.
    begun = time.monotonic()
    assert sandbox.run_code("1").text == "1"
    assert time.monotonic() - begun < 25


def test_a_limit_is_an_error_that_names_it(served: Server) -> None:
    with made(served, BETA) as sandbox:
        execution = sandbox.run_code("while True: pass")
        assert execution.error is not None
        assert "limits." in execution.error.value
        ended = sandbox.run_code("import os; os._exit(3)")
        assert ended.error is not None
        assert "restart" in ended.error.value
        with pytest.raises(NotFoundException, match="ended"):
            sandbox.run_code("1")
        sandbox.restart_code_context(sandbox.list_code_contexts()[0])
        assert sandbox.run_code("1").text == "1"


def test_contexts_have_separate_variables_and_files(sandbox: Sandbox) -> None:
    default = sandbox.list_code_contexts()[0]
    context = sandbox.create_code_context(cwd="/home/user/deep/er")
    assert (context.language, context.cwd) == ("python", "/work/deep/er")
    assert [found.id for found in sandbox.list_code_contexts()] == [default.id, context.id]
    sandbox.run_code("mine = 1", context=default)
    ask = "import os; ('mine' in globals(), os.getcwd(), os.environ['PLACE'])"
    assert sandbox.run_code(ask, context=context).text == "(False, '/work/deep/er', 'the sandbox')"
    sandbox.run_code("theirs = 1", context=context)
    sandbox.restart_code_context(context)
    again = sandbox.run_code("'theirs' in globals()", context=context)
    assert (again.text, again.execution_count) == ("False", 1)
    assert sandbox.run_code(ask, context=context).text == "(False, '/work/deep/er', 'the sandbox')"
    sandbox.remove_code_context(context)
    with pytest.raises(NotFoundException):
        sandbox.run_code("1", context=context)
    with pytest.raises(SandboxException, match="first context"):
        sandbox.remove_code_context(default)
    with pytest.raises(SandboxException, match="`r`"):
        sandbox.create_code_context(language="r")
    with pytest.raises(SandboxException, match="`javascript`"):
        sandbox.run_code("1", language="javascript")
    with pytest.raises(SandboxException, match="400"):
        sandbox.create_code_context(cwd="/etc")


# Files.


def test_files_are_those_of_the_cells(sandbox: Sandbox) -> None:
    files = sandbox.files
    written = files.write("/home/user/in/a.txt", "é")
    assert (written.name, written.path, written.type) == ("a.txt", "/work/in/a.txt", FileType.FILE)
    assert sandbox.run_code("open('in/a.txt').read()").text == "'é'"
    sandbox.run_code("open('out.bin', 'wb').write(bytes(range(256)))")
    assert files.read("out.bin", format="bytes") == bytes(range(256))
    with files.read("out.bin", format="stream") as stream:
        assert b"".join(stream) == bytes(range(256))
    several = files.write_files([{"path": f"in/{n}", "data": b"\r\n--x"} for n in range(3)])
    assert [entry.path for entry in several] == ["/work/in/0", "/work/in/1", "/work/in/2"]
    assert files.read("in/2") == "\r\n--x"
    assert files.write("zipped", "text", gzip=True).name == "zipped"
    assert sorted(entry.name for entry in files.list("/home/user/in")) == ["0", "1", "2", "a.txt"]
    deep = {entry.path: entry.type for entry in files.list("/home/user", depth=2)}
    assert (deep["/work/in"], deep["/work/in/a.txt"]) == (FileType.DIR, FileType.FILE)
    info = files.get_info("in/a.txt")
    assert (info.size, info.type, info.path) == (2, FileType.FILE, "/work/in/a.txt")
    assert abs(info.modified_time.timestamp() - time.time()) < 600
    assert (files.make_dir("new/er"), files.make_dir("new/er")) == (True, False)
    assert files.rename("in/a.txt", "new/b.txt").path == "/work/new/b.txt"
    assert (files.exists("in/a.txt"), files.exists("new/b.txt")) == (False, True)
    files.remove("new")
    assert not files.exists("new/b.txt")


def test_missing_paths_are_not_found(sandbox: Sandbox) -> None:
    files = sandbox.files
    for call in (files.read, files.list, files.get_info, files.remove):
        with pytest.raises(NotFoundException):
            call("missing")
    with pytest.raises(NotFoundException):
        files.rename("missing", "there")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "/home/user/../../etc", "/home/users/a", "a\0b"])
def test_path_traversal_is_rejected(sandbox: Sandbox, path: str) -> None:
    files = sandbox.files
    for call in (files.read, files.list, files.get_info, files.remove, files.make_dir):
        with pytest.raises(InvalidArgumentException):
            call(path)
    with pytest.raises(InvalidArgumentException):
        files.write(path, "x")
    with pytest.raises(InvalidArgumentException):
        files.rename("x", path)


def test_links_of_a_guest_are_not_followed(sandbox: Sandbox) -> None:
    sandbox.run_code("import os; os.symlink('/etc', 'link'); os.symlink('/etc/passwd', 'file')")
    assert sandbox.files.get_info("link").type == FileType.SYMLINK
    for call in (sandbox.files.read, sandbox.files.list):
        with pytest.raises(SandboxException):
            call("link/passwd")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.read("file")


def test_unsupported_features_are_rejected_by_name(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxException, match="one user"):
        sandbox.files.read("x", user="root")
    with pytest.raises(SandboxException, match="one user"):
        sandbox.files.list(".", user="root")
    with pytest.raises(SandboxException, match="501.*not with its files alone"):
        sandbox.pause(mode="filesystem")
    with pytest.raises(SandboxException, match="501.*tenant's policy"):
        sandbox.update_network({"deny_out": ["1.1.1.1/32"]})
    assert sandbox.get_metrics() == []


def test_client_polls_directory_events(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("watched/below")
    handle = sandbox.files.watch_dir("/home/user/watched", recursive=True)
    assert handle.get_new_events() == []
    sandbox.files.write("watched/below/a", "x")
    sandbox.run_code("import os; os.rename('watched/below/a', 'watched/b'); os.remove('watched/b')")
    found = [(event.type.value, event.name) for event in handle.get_new_events()]
    assert found[0] == ("create", "below/a")
    assert found[-3:] == [("rename", "below/a"), ("create", "b"), ("remove", "b")]
    assert handle.get_new_events() == []
    handle.stop()
    with pytest.raises(SandboxException, match="already stopped"):
        handle.get_new_events()
    with pytest.raises(NotFoundException, match="no such watcher"):
        handle.stop()
    with pytest.raises(NotFoundException, match="cannot be watched"):
        sandbox.files.watch_dir("missing")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.watch_dir("/etc")


def test_flood_of_changes_is_an_error_and_keeps_the_watch(sandbox: Sandbox) -> None:
    handle = sandbox.files.watch_dir(".")
    sandbox.run_code("import os\nfor n in range(10_000):\n    os.mkdir('x'); os.rmdir('x')")
    with pytest.raises(SandboxException, match="more events than are kept"):
        list(iter(handle.get_new_events, []))
    sandbox.files.write("after", "x")
    assert "after" in {event.name for event in handle.get_new_events()}
    handle.stop()


def test_a_tenant_has_few_watches(served: Server, sandbox: Sandbox) -> None:
    handles = [sandbox.files.watch_dir(".") for _ in range(8)]
    with made(served) as other, pytest.raises(RateLimitException, match="stop a watcher"):
        other.files.watch_dir(".")
    for handle in handles:
        handle.stop()
    with made(served) as other:
        handle = other.files.watch_dir(".")
        other.restart_code_context(other.list_code_contexts()[0])
        with pytest.raises(NotFoundException, match="watch"):
            handle.get_new_events()


async def test_stream_contains_directory_events(served: Server) -> None:
    sandbox = await AsyncSandbox.create(**options(served))
    try:
        seen: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        ended: asyncio.Queue[Exception | None] = asyncio.Queue()
        handle = await sandbox.files.watch_dir(
            ".", lambda event: seen.put_nowait((event.type.value, event.name)), ended.put_nowait
        )
        await sandbox.files.write("a", "x")
        assert [await seen.get() for _ in range(3)] == [("create", "a"), ("chmod", "a"), ("write", "a")]
        await handle.stop()
        assert await ended.get() is None
        with pytest.raises(NotFoundException):
            await sandbox.files.watch_dir("missing", seen.put_nowait)
        await sandbox.files.watch_dir(".", lambda _: None, ended.put_nowait, recursive=True)
        await sandbox.restart_code_context((await sandbox.list_code_contexts())[0])
        assert isinstance(await ended.get(), NotFoundException)
    finally:
        await sandbox.kill()


def test_a_signed_url_is_for_one_file_and_time(sandbox: Sandbox) -> None:
    sandbox.files.write("signed", "text")
    url = sandbox.download_url("signed", use_signature_expiration=600)
    assert urllib.request.urlopen(url, timeout=60).read() == b"text"
    assert urllib.request.urlopen(sandbox.download_url("signed"), timeout=60).read() == b"text"
    head = urllib.request.Request(url, method="HEAD")
    assert urllib.request.urlopen(head, timeout=60).headers["content-length"] == "4"
    expired = sandbox.download_url("signed", use_signature_expiration=-10)
    other = url.replace("path=signed", "path=other")
    write = sandbox.upload_url("signed")
    for wrong in (expired, other, write, url + "0", url.replace("signature=v1_", "signature=v1_A")):
        with pytest.raises(urllib.error.HTTPError, match="502") as refused:
            urllib.request.urlopen(wrong, timeout=60)
        refused.value.close()


# Commands.


def test_a_command_has_output_and_a_status(sandbox: Sandbox) -> None:
    sandbox.run_code("open('made', 'w').write('by a cell')")
    seen: list[tuple[str, str]] = []
    done = sandbox.commands.run(
        "cat made; echo $PLACE $WORD >&2; pwd",
        envs={"WORD": "é"},
        on_stdout=lambda text: seen.append(("out", text)),
        on_stderr=lambda text: seen.append(("err", text)),
    )
    assert (done.stdout, done.stderr, done.exit_code) == ("by a cell/work\n", "the sandbox é\n", 0)
    assert ("err", "the sandbox é\n") in seen
    assert sandbox.commands.run("pwd", cwd="/home/user").stdout == "/work\n"
    assert sandbox.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    with pytest.raises(CommandExitException) as raised:
        sandbox.commands.run("echo no >&2; exit 7")
    assert (raised.value.exit_code, raised.value.stderr) == (7, "no\n")
    with pytest.raises(CommandExitException) as raised:
        sandbox.commands.run("kill -9 $$")
    assert (raised.value.exit_code, raised.value.error) == (-1, "signal: 9")
    with pytest.raises(NotFoundException):
        sandbox.commands.run("true", cwd="/no/where")


def test_commands_run_in_the_background(sandbox: Sandbox) -> None:
    commands = sandbox.commands
    handle = commands.run("read line; echo got $line; cat; exit 3", background=True, stdin=True)
    (found,) = [process for process in commands.list() if process.pid == handle.pid]
    assert found.args[-1].startswith("read line")
    other = commands.connect(handle.pid)
    commands.send_stdin(handle.pid, "one\n")
    handle.send_stdin("é" * 100_000)
    handle.close_stdin()
    for each in (handle, other):
        with pytest.raises(CommandExitException) as raised:
            each.wait()
        assert (raised.value.exit_code, raised.value.stdout) == (3, "got one\n" + "é" * 100_000)
    with pytest.raises(NotFoundException):
        commands.connect(handle.pid)
    with pytest.raises(NotFoundException):
        commands.send_stdin(handle.pid, "x")


def test_command_continues_without_its_client(sandbox: Sandbox) -> None:
    commands = sandbox.commands
    # More output than fits into its pipe, while no client reads it.
    code = "until test -e go; do sleep 0.01; done; head -c 200000 /dev/zero; echo; touch over; exec sleep 600"
    handle = commands.run(code, background=True, timeout=600)
    handle.disconnect()
    sandbox.files.write("go", "")
    eventually(lambda: sandbox.files.exists("over"))
    assert commands.kill(handle.pid) is True
    eventually(lambda: all(process.pid != handle.pid for process in commands.list()))
    assert commands.kill(handle.pid) is False


def test_command_ends_at_its_timeout(sandbox: Sandbox) -> None:
    with pytest.raises(TimeoutException):
        sandbox.commands.run("sleep 600", timeout=1)
    eventually(lambda: all("sleep 600" not in process.args[-1] for process in sandbox.commands.list()))


def test_unread_input_blocks_only_its_client(sandbox: Sandbox) -> None:
    commands = sandbox.commands
    handle = commands.run("exec sleep 600", background=True, stdin=True, timeout=600)
    with pytest.raises(TimeoutException):
        commands.send_stdin(handle.pid, "x" * 1_000_000, request_timeout=0.5)
    assert commands.run("echo on").stdout == "on\n"
    assert commands.kill(handle.pid)
    with pytest.raises(CommandExitException):
        handle.wait()


def test_a_command_has_limits(served: Server) -> None:
    with made(served) as sandbox:
        with pytest.raises(CommandExitException, match="limits.output"):
            sandbox.commands.run("yes")
        each = [sandbox.commands.run("sleep 600", background=True, timeout=600) for _ in range(32)]
        with pytest.raises(SandboxException, match="32 programs"):
            sandbox.commands.run("true")
        # They end with the sandbox.
        assert sandbox.kill()
        for handle in each:
            with pytest.raises(SandboxException):
                handle.wait()


def test_killed_program_starter_is_not_a_server_error(sandbox: Sandbox) -> None:
    # This also kills the process that starts commands, which ends slightly later.
    code = """import os
for name in filter(str.isdigit, os.listdir("/proc")):
    if int(name) > 2: os.kill(int(name), 9)"""
    for _ in range(30):
        with contextlib.suppress(RateLimitException):
            sandbox.commands.run("true")
        sandbox.run_code(code)
        with contextlib.suppress(RateLimitException):
            assert sandbox.commands.run("echo hi").stdout == "hi\n"


def test_terminal_receives_input(sandbox: Sandbox) -> None:
    output = bytearray()
    terminal = sandbox.pty.create(PtySize(rows=30, cols=100), envs={"PS1": ""}, timeout=60)
    sandbox.pty.resize(terminal.pid, PtySize(rows=40, cols=120))
    sandbox.pty.send_stdin(terminal.pid, b"until stty size | grep '^40 120'; do sleep 0.01; done\n")
    sandbox.pty.send_stdin(terminal.pid, b"echo $TERM-$((1 + 1)); exit 4\n")
    with pytest.raises(CommandExitException) as raised:
        terminal.wait(on_pty=output.extend)
    assert raised.value.exit_code == 4
    assert b"40 120\r\n" in output
    assert b"xterm-256color-2\r\n" in output
    with pytest.raises(NotFoundException):
        sandbox.pty.resize(terminal.pid, PtySize(rows=1, cols=1))


# Sandboxes.


def test_sandbox_ends_at_its_timeout(served: Server) -> None:
    with made(served, timeout=300) as sandbox:
        assert sandbox.is_running()
        info = sandbox.get_info()
        assert 290 < (info.end_at - info.started_at).total_seconds() < 310
        Sandbox.connect(sandbox.sandbox_id, timeout=600, **options(served))
        assert (sandbox.get_info().end_at - info.started_at).total_seconds() > 500
        sandbox.connect(timeout=1)
        assert (sandbox.get_info().end_at - info.started_at).total_seconds() > 500
        found = Sandbox.connect(sandbox.sandbox_id, **options(served))
        found.run_code("x = 1")
        assert sandbox.run_code("x").text == "1"
        sandbox.set_timeout(1)
        eventually(lambda: not sandbox.is_running())
        with pytest.raises(SandboxNotRunningException):
            sandbox.files.read("x")
        with pytest.raises(TimeoutException):
            sandbox.run_code("1")
        with pytest.raises(SandboxNotFoundException):
            sandbox.get_info()
        assert not sandbox.kill()


def test_end_of_a_sandbox_ends_its_programs(served: Server) -> None:
    with made(served) as sandbox:
        begun = threading.Event()
        ended: list[Any] = []

        def run() -> None:
            code = "import time\nprint('begun', flush=True)\ntime.sleep(25)"
            with contextlib.suppress(Exception):
                ended.append(sandbox.run_code(code, on_stdout=lambda _: begun.set()))

        thread = threading.Thread(target=run)
        thread.start()
        assert begun.wait(60)
        # Cells that wait for the running cell.
        with ThreadPoolExecutor() as pool:
            named = data(sandbox)
            waiting = [
                pool.submit(served.ask, "POST", "/execute", {"code": "print(1)"}, **named) for _ in range(4)
            ]
            time.sleep(0.5)
            killed = time.monotonic()
            assert sandbox.kill()
            thread.join(60)
            assert time.monotonic() - killed < 20
            assert {cell.result().status for cell in waiting} == {404}


def test_sandbox_list_is_paginated(served: Server) -> None:
    mark = uuid.uuid4().hex
    with contextlib.ExitStack() as stack:
        each = [
            stack.enter_context(made(served, metadata={"mark of": f"{mark} &=é", "n": str(n)}))
            for n in range(3)
        ]
        ids = [sandbox.sandbox_id for sandbox in each]

        def listed(**more: Any) -> list[list[str]]:
            query = SandboxQuery(metadata={"mark of": f"{mark} &=é"}, **more.pop("query", {}))
            pages = Sandbox.list(query=query, **more, **options(served))
            found = []
            while pages.has_next:
                found.append([info.sandbox_id for info in pages.next_items()])
            return found

        assert listed() == [ids[::-1]]
        assert listed(order="asc", limit=2) == [ids[:2], ids[2:]]
        assert listed(limit=2) == [[ids[2], ids[1]], [ids[0]]]
        assert listed(query={"state": [SandboxState.PAUSED]}) == [[]]
        assert listed(query={"state": [SandboxState.RUNNING], "template": "none"}) == [[]]
        info = each[1].get_info()
        assert (info.metadata["n"], info.template_id) == ("1", "code-interpreter-v1")
        assert (info.state, info.memory_mb, info.cpu_count) == (SandboxState.RUNNING, 512, 1)


def states(server: Server) -> dict[str, str]:
    listed = Sandbox.list(**options(server)).next_items()
    return {info.sandbox_id: info.state.value for info in listed}


def files_on_disk(server: Server) -> int:
    """The number of the server's unnamed files on a disk: they hold the paused sandboxes."""
    descriptors = pathlib.Path(f"/proc/{server.process.pid}/fd")
    targets = [os.readlink(descriptor) for descriptor in descriptors.iterdir() if descriptor.is_symlink()]
    return sum(
        bool(re.match(r"/(var/tmp|.+/\.cache/sandfork)/#\d+ \(deleted\)", target)) for target in targets
    )


def test_paused_sandbox_resumes_when_a_client_connects(served: Server) -> None:
    with made(served, envs={"PLACE": "here"}, timeout=3600) as sandbox:
        other = sandbox.create_code_context()
        sandbox.run_code("import os; x = [1]; open('kept', 'w').write(os.environ['PLACE'])")
        sandbox.run_code("y = 2", context=other)
        assert (sandbox.pause(), sandbox.pause()) == (True, False)
        assert states(served)[sandbox.sandbox_id] == "paused"
        assert sandbox.get_info().state == SandboxState.PAUSED
        assert not sandbox.is_running()
        assert files_on_disk(served) > 0
        with pytest.raises(TimeoutException):
            sandbox.run_code("x")
        with pytest.raises(SandboxException, match="400.*connect to it first"):
            sandbox.create_snapshot()
        again = Sandbox.connect(sandbox.sandbox_id, timeout=600, **options(served))
        assert (
            again.run_code("x.append(2); x, open('kept').read(), os.environ['PLACE']").text
            == "([1, 2], 'here', 'here')"
        )
        assert again.run_code("y", context=other).text == "2"
        assert files_on_disk(served) == 0
        left = again.get_info().end_at.timestamp() - time.time()
        assert 300 < left < 700
        assert states(served)[sandbox.sandbox_id] == "running"


def test_no_cell_is_lost_between_the_state_and_the_pause(served: Server) -> None:
    """The saved state contains each cell whose result was sent."""
    with made(served) as sandbox:
        sandbox.run_code("n = 0")
        counted: list[int] = []

        def count() -> None:
            with contextlib.suppress(SandboxException, TimeoutException):
                while True:
                    text = sandbox.run_code("n += 1; n").text
                    assert text is not None
                    counted.append(int(text))

        counting = threading.Thread(target=count)
        counting.start()
        eventually(lambda: counted)
        assert sandbox.pause()
        counting.join()
        again = Sandbox.connect(sandbox.sandbox_id, **options(served))
        assert again.run_code("n").text == str(counted[-1])


def test_a_paused_sandbox_has_no_watches(served: Server) -> None:
    with made(served, BETA) as sandbox, made(served, BETA) as other:
        for _ in range(8):
            sandbox.files.watch_dir(".")
        with pytest.raises(RateLimitException):
            other.files.watch_dir(".")
        sandbox.pause()
        other.files.watch_dir(".").stop()


def test_sandbox_that_cannot_be_paused_continues(served: Server) -> None:
    with made(served) as sandbox:
        sandbox.run_code("x = 1")
        running = sandbox.commands.run("sleep 1000", background=True)
        with pytest.raises(SandboxException, match="400: cannot snapshot: .* still runs"):
            sandbox.pause()
        assert sandbox.is_running()
        assert sandbox.run_code("x").text == "1"
        running.kill()
        eventually(lambda: all(process.pid != running.pid for process in sandbox.commands.list()))
        # The server pauses the first context, and then the second one refuses to pause.
        other = sandbox.create_code_context()
        thread = (
            "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"
        )
        sandbox.run_code(f"y = 2; {thread}", context=other)
        with pytest.raises(SandboxException, match="400: cannot snapshot: .* 2 threads"):
            sandbox.pause()
        assert sandbox.run_code("x").text == "1"
        assert sandbox.run_code("y", context=other).text == "2"


def test_sandbox_survives_its_ended_context(served: Server) -> None:
    with made(served) as sandbox:
        sandbox.run_code("import os; os._exit(3)")
        for call in (sandbox.pause, sandbox.create_snapshot, sandbox.fork):
            with pytest.raises(SandboxException, match="400: .* has ended, .*: restart it"):
                call()
        assert states(served)[sandbox.sandbox_id] == "running"
        sandbox.restart_code_context(sandbox.list_code_contexts()[0])
        assert sandbox.pause()


def test_sandbox_is_paused_at_its_timeout(served: Server) -> None:
    with made(served, timeout=1, lifecycle={"on_timeout": "pause"}) as sandbox:
        eventually(lambda: states(served)[sandbox.sandbox_id] == "paused")
        assert Sandbox.connect(sandbox.sandbox_id, **options(served)).run_code("6 * 7").text == "42"


def test_a_paused_sandbox_counts_until_it_is_killed(served: Server) -> None:
    with made(served, BETA) as first, made(served, BETA) as second:
        first.pause()
        with pytest.raises(RateLimitException):
            Sandbox.create(**options(served, BETA))
        with pytest.raises(SandboxNotFoundException):
            Sandbox.connect(first.sandbox_id, **options(served, ALPHA))
        # The paused sandbox still has its place, so it can resume.
        again = Sandbox.connect(first.sandbox_id, **options(served, BETA))
        assert again.run_code("1").text == "1"
        second.pause()
        second.kill()
        with made(served, BETA):
            pass


def test_forks_start_with_the_state(served: Server) -> None:
    with made(served, metadata={"a": "b"}, envs={"E": "1"}) as sandbox:
        sandbox.run_code("x = [1]; open('f', 'w').write('f')")
        other = sandbox.create_code_context()
        sandbox.run_code("y = 2", context=other)
        forks = sandbox.fork(count=2)
        for number, fork in enumerate(forks):
            assert isinstance(fork, Sandbox), fork
            ask = f"x.append({number}); import os; (x, open('f').read(), os.environ['E'])"
            assert fork.run_code(ask).text == f"([1, {number}], 'f', '1')"
            assert fork.run_code("y", context=other).text == "2"
            assert fork.get_info().metadata == {"a": "b"}
            assert fork.kill()
        assert sandbox.run_code("x").text == "[1]"


def test_a_snapshot_is_a_template_until_it_is_deleted(served: Server) -> None:
    with made(served) as sandbox:
        sandbox.run_code("x = 1")
        snapshot = sandbox.create_snapshot(name="one")
        assert snapshot.names == ["one"]
        sandbox.run_code("x = 2")
        found = sandbox.list_snapshots().next_items()
        assert [(info.snapshot_id, info.names) for info in found] == [(snapshot.snapshot_id, ["one"])]
        for template in (snapshot.snapshot_id, "one"):
            with made(served, template=template, envs={"N": "n"}) as later:
                assert later.run_code("import os; x, os.environ['N']").text == "(1, 'n')"
        with pytest.raises(SandboxException, match="404"):
            Sandbox.create(template="one", **options(served, BETA))
        assert not Sandbox.delete_snapshot(snapshot.snapshot_id, **options(served, BETA))
        assert Sandbox.delete_snapshot(snapshot.snapshot_id, **options(served))
        assert not Sandbox.delete_snapshot(snapshot.snapshot_id, **options(served))
        sandbox.run_code(
            "import threading; e = threading.Event(); t = threading.Thread(target=e.wait); t.start()"
        )
        with pytest.raises(SandboxException, match="400: cannot snapshot: the session has 2 threads"):
            sandbox.create_snapshot()
        sandbox.run_code("e.set(); t.join()")


def test_shared_snapshot_name_refers_to_the_latest(served: Server) -> None:
    with made(served) as sandbox:
        taken = []
        for number in range(6):
            sandbox.run_code(f"x = {number}")
            taken.append(sandbox.create_snapshot(name="nightly").snapshot_id)
        for number in reversed(range(6)):
            with made(served, template="nightly") as later:
                assert later.run_code("x").text == str(number)
            # A deletion by name deletes the snapshot that got the name last.
            assert Sandbox.delete_snapshot("nightly", **options(served))
            with pytest.raises(SandboxException, match="404"):
                Sandbox.create(template=taken[number], **options(served))


def test_sandbox_belongs_to_its_tenant(served: Server, sandbox: Sandbox) -> None:
    other = options(served, BETA)
    identity = sandbox.sandbox_id
    assert Sandbox.list(**other).next_items() == []
    assert Sandbox.kill(identity, **other) is False
    for call in (Sandbox.get_info, Sandbox.connect, Sandbox.fork, Sandbox.create_snapshot):
        with pytest.raises(SandboxNotFoundException):
            call(identity, **other)
    with pytest.raises(SandboxNotFoundException):
        Sandbox.set_timeout(identity, 1, **other)
    with pytest.raises(AuthenticationException):
        Sandbox.create(**options(served, "c" * 32))
    # Neither a tenant's token nor the token of another sandbox opens this sandbox.
    with made(served, BETA) as mine:
        for token in ("", BETA, ALPHA, mine.traffic_access_token or ""):
            headers = {**data(sandbox), "E2B_Traffic_Access_Token": token, "X_API_Key": ALPHA}
            answer = served.ask("POST", "/execute", {"code": "1"}, **headers)
            assert (answer.status, answer.json["message"]) == (502, "the sandbox was not found")


def test_tenant_quotas_are_enforced(served: Server) -> None:
    with made(served, BETA) as sandbox, made(served, BETA):
        with pytest.raises(RateLimitException, match="2 open sessions"):
            Sandbox.create(**options(served, BETA))
        with pytest.raises(SandboxException, match="2 open sessions"):
            sandbox.create_code_context()
        with pytest.raises(RateLimitException):
            sandbox.fork()
    assert Sandbox.list(**options(served, BETA)).next_items() == []


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        (b"{", 400, "invalid body"),
        ({}, 400, "templateID"),
        ({"templateID": "other"}, 404, "templateID"),
        ({"templateID": "base", "timeout": 0}, 400, "timeout"),
        ({"templateID": "base", "timeout": 10**9}, 400, "timeout"),
        ({"templateID": "base", "timeout": -1}, 400, "timeout"),
        ({"templateID": "base", "metadata": {"a": 1}}, 400, "invalid body"),
        ({"templateID": "base", "envVars": {"a": "b" * 70_000}}, 400, "envVars"),
        ({"templateID": "base", "envVars": {"a\0": "b"}}, 400, "null"),
        ({"templateID": "base", "mcp": {"a": {}}}, 501, "mcp"),
        ({"templateID": "base", "autoPause": True, "autoPauseMemory": False}, 501, "files alone"),
        ({"templateID": "base", "autoResume": {"enabled": True}}, 501, "autoResume"),
        ({"templateID": "base", "network": {"denyOut": ["0.0.0.0/0"]}}, 501, "network"),
        ({"templateID": "base", "volumeMounts": [{"name": "a"}]}, 501, "volumeMounts"),
    ],
)
def test_sandbox_that_cannot_be_created_is_refused(
    served: Server, asked: Any, status: int, words: str
) -> None:
    answer = served.ask("POST", "/v2/sandboxes", asked, X_API_Key=ALPHA)
    assert (answer.status, answer.json["code"]) == (status, status), answer.body
    assert words in answer.json["message"]


def test_malformed_requests_are_answered(served: Server, sandbox: Sandbox) -> None:
    headers = data(sandbox)
    form = {"Content_Type": "multipart/form-data; boundary=x"}
    part = b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n1\r\n'
    for method, path, body, more, status in [
        ("POST", "/execute", b"[1", {}, 400),
        ("POST", "/execute", {"code": 1}, {}, 400),
        ("POST", "/execute", {"code": "1", "context_id": "a", "language": "python"}, {}, 400),
        ("POST", "/execute", {"code": "1", "context_id": "a"}, {}, 404),
        ("DELETE", "/contexts/none", None, {}, 404),
        ("POST", "/contexts/none/restart", None, {}, 404),
        ("GET", "/files", None, {}, 400),
        ("GET", "/files?path=a&path=b", None, {}, 400),
        ("POST", "/files?path=a", b"text", {}, 400),
        ("POST", "/files?path=a", b"no boundary", form, 400),
        ("POST", "/files?path=a", part, form, 400),
        ("POST", "/files", part + b"--x--\r\n", form, 400),
        ("POST", "/files?path=../a", part + b"--x--\r\n", form, 400),
        ("POST", "/files?path=a", b"", {"Content_Length": str(10**12)}, 413),
        ("POST", "/files?path=a", part + b"--x--\r\n", {**form, "Content_Encoding": "gzip"}, 501),
        ("POST", "/filesystem.Filesystem/Stat", b"{", {}, 400),
        ("POST", "/filesystem.Filesystem/CreateWatcher", {"path": "../a"}, {}, 400),
        ("POST", "/filesystem.Filesystem/GetWatcherEvents", {}, {}, 400),
        ("POST", "/filesystem.Filesystem/GetWatcherEvents", {"watcherId": "a"}, {}, 404),
        ("POST", "/filesystem.Filesystem/RemoveWatcher", {"watcherId": "a"}, {}, 404),
        ("POST", "/filesystem.Filesystem/Nothing", {}, {}, 501),
        ("POST", "/process.Process/SendInput", {"process": {"pid": 1}}, {}, 404),
        ("POST", "/process.Process/SendInput", {"input": {"stdin": "!"}}, {}, 400),
        ("POST", "/process.Process/SendSignal", {"process": {"pid": 1}, "signal": 99}, {}, 400),
        ("POST", "/process.Process/Nothing", {}, {}, 501),
        ("GET", "/health", None, {"E2b_Sandbox_Port": "3000"}, 502),
        ("GET", "/health", None, {"E2b_Sandbox_Id": "none"}, 502),
        ("GET", "/health", None, {}, 204),
    ]:
        answer = served.ask(method, path, body, **{**headers, **more})
        assert answer.status == status, (method, path, body, answer)
        if status != 204:
            assert json.loads(answer.body)["message"], path
    for body in (b"", b"{}", b"\0\0\0\0\1", b"\1\0\0\0\2{}", b"\0\0\0\0\2[1", b"\0\xff\xff\xff\xff{}"):
        for call in ("/process.Process/Start", "/filesystem.Filesystem/WatchDir"):
            answer = served.ask("POST", call, body, **headers)
            assert (answer.status, answer.body[0]) == (200, 2), (call, body)
            assert json.loads(answer.body[5:])["error"]["code"] == "invalid_argument"
    assert served.ask("GET", "/health").status == 502
    assert served.ask("GET", "/v2/sandboxes?limit=x", X_API_Key=ALPHA).status == 400
    assert served.ask("GET", "/v2/sandboxes?startedAfter=2020", X_API_Key=ALPHA).status == 501


async def test_async_client_behaves_the_same(served: Server) -> None:
    sandbox = await AsyncSandbox.create(metadata={"way": "async"}, **options(served))
    try:
        lines: list[str] = []
        execution = await sandbox.run_code(
            "print(1); 2", on_stdout=lambda message: lines.append(message.line)
        )
        assert ("".join(lines), execution.text) == ("1\n", "2")
        await sandbox.files.write("a", b"b")
        assert await sandbox.files.read("a") == "b"
        assert [entry.name for entry in await sandbox.files.list(".")] == ["a"]
        context = await sandbox.create_code_context()
        assert (await sandbox.run_code("'lines' in globals()", context=context)).text == "False"
        await sandbox.remove_code_context(context)
        with pytest.raises(TimeoutException):
            await sandbox.run_code("import time; time.sleep(20)", timeout=0.5)
        assert (await sandbox.run_code("1")).text == "1"
        assert await sandbox.is_running()
        assert (await sandbox.commands.run("cat a; echo -n c")).stdout == "bc"
        handle = await sandbox.commands.run("cat", background=True, stdin=True)
        await handle.send_stdin("typed")
        await handle.close_stdin()
        assert (await handle.wait()).stdout == "typed"
        (fork,) = await sandbox.fork()
        assert isinstance(fork, AsyncSandbox)
        assert await fork.kill()
    finally:
        assert await sandbox.kill()
    assert not await sandbox.is_running()

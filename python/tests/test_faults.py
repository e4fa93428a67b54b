"""A supervisor that dies or sends invalid messages: one clear exception, and no open descriptor is left."""

from __future__ import annotations

import os
import struct
from typing import Any

import pytest

import sandfork
from sandfork import Sandbox

from .support.descriptors import assert_closed_since, opened
from .support.fake import USAGE, FakeSession, FakeSupervisor
from .support.wire import Received, frame, passed_file

OUTCOME = {
    "kind": "outcome",
    "id": 1,
    "outcome": {"status": "ok", "usage": USAGE, "denied": []},
    "session": "live",
    "execution_count": 1,
}


def run(fake: FakeSupervisor, handler: Any) -> BaseException:
    """The exception of a cell with this answer of the supervisor. The session is then unusable, reports it,
    and can be restarted."""
    fake.on("fault", handler)
    with Sandbox() as sbx:
        with pytest.raises(sandfork.SupervisorError) as caught:
            sbx.run("fault")
        with pytest.raises(sandfork.SessionEnded, match="variables, imports and files are lost"):
            sbx.run("1")
        sbx.restart()
        assert sbx.run("1").value == 1
    return caught.value


def sends(data: bytes, *passed: bytes) -> Any:
    """Answers with these bytes and files, and disconnects."""

    def handler(session: FakeSession, cell: Received) -> None:
        files = tuple(passed_file(content) for content in passed)
        session.wire.send_bytes(data, files)
        for descriptor in files:
            os.close(descriptor)
        session.wire.socket.shutdown(2)

    return handler


def test_the_end_of_the_stream_is_the_end_of_the_supervisor(fake: FakeSupervisor) -> None:
    error = run(fake, sends(b""))
    assert isinstance(error, sandfork.SupervisorDied)
    assert "closed the session's connection" in str(error)


@pytest.mark.parametrize("length", [1, 7, 8, 20, len(frame(OUTCOME)) - 1])
def test_truncated_frame_ends_the_stream_too(fake: FakeSupervisor, length: int) -> None:
    assert isinstance(run(fake, sends(frame(OUTCOME)[:length])), sandfork.SupervisorDied)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (struct.pack("<II", 0, 5) + b"hello", "announced a message of 0 and 5 bytes"),
        (struct.pack("<II", 1 << 30, 0), "announced a message"),
        (struct.pack("<II", 2, 1 << 30) + b"{}", "announced a message"),
        (b"GET / HTTP/1.1\r\n\r\n", "announced a message"),
        (frame(b"{"), "a header that is no JSON"),
        (frame(b'{"kind": "\xff"}'), "a header that is no JSON"),
        (frame(b"[" * 100_000), "a header that is no JSON"),
        (frame(b"{} {}"), "a header that is no message"),
        (frame([]), "a header that is no message"),
        (frame({}), "a header that is no message"),
        (frame({"kind": 3}), "a header that is no message"),
        (frame({"kind": "dance"}), "sent 'dance' when nothing of the kind was due"),
        (frame({"kind": "opened"}), "sent 'opened' when"),
        (frame({**OUTCOME, "id": 77}), "sent 'outcome' when"),
        (frame({**OUTCOME, "outcome": 3}), "an outcome without a status"),
        (frame({**OUTCOME, "outcome": {}}), "an outcome without a status"),
        (frame({**OUTCOME, "session": "maybe"}), "whether the session lives"),
        (frame({**OUTCOME, "blob": 3}), "buffers of no known length"),
        (frame({**OUTCOME, "blob": {"lengths": [-1]}}), "buffers of no known length"),
        (frame({**OUTCOME, "blob": {"lengths": [5]}}, b"four"), "sent 4 bytes instead of 5"),
        (frame({**OUTCOME, "blob": {"lengths": [5], "passed": True}}), "announced a file and passed none"),
        (frame({"kind": "display", "id": 1}), "a display of nothing"),
        (frame({"kind": "call", "id": 1}), "a call that does not say of what"),
        (frame({"kind": "call", "call": "a", "tool": "f"}), "a call whose call is no int"),
        (frame({"kind": "call", "call": 1, "tool": "f", "args": {}}), "a call whose args is no list"),
        (frame({"kind": "error", "error": "protocol", "message": "a word"}), "a word"),
    ],
)
def test_nonsense_is_a_protocol_error(fake: FakeSupervisor, data: bytes, said: str) -> None:
    error = run(fake, sends(data))
    assert isinstance(error, sandfork.ProtocolError)
    assert said in str(error)


@pytest.mark.parametrize(
    ("header", "files", "said"),
    [
        (OUTCOME, [b"a"], "a file that no message refers to"),
        (OUTCOME, [b"a", b"b"], "more files with a message than one"),
        (OUTCOME, [b"a"] * 100, "more files with a message than one"),
        ({**OUTCOME, "blob": {"lengths": [5], "passed": True}}, [b"four"], "not 5 sealed bytes"),
    ],
)
def test_unexpected_files_are_rejected_and_closed(
    fake: FakeSupervisor, header: Any, files: list[bytes], said: str
) -> None:
    before = opened()
    error = run(fake, sends(frame(header), *files))
    assert isinstance(error, sandfork.ProtocolError)
    assert said in str(error)
    fake.close()
    assert_closed_since(before)


def test_a_file_that_could_shrink_is_refused(fake: FakeSupervisor) -> None:
    def handler(session: FakeSession, cell: Received) -> None:
        descriptor = passed_file(b"four", seals=0)
        header = {**OUTCOME, "id": cell.header["id"], "blob": {"lengths": [4], "passed": True}}
        session.wire.send(header, b"", (descriptor,))
        os.close(descriptor)

    assert "not 4 sealed bytes" in str(run(fake, handler))


def test_a_file_of_empty_buffers_is_taken(fake: FakeSupervisor) -> None:
    def handler(session: FakeSession, cell: Received) -> None:
        descriptor = passed_file(b"")
        value = {"type": "bytes", "buffer": 0}
        blob = {"lengths": [0], "passed": True}
        header = {**OUTCOME, "id": cell.header["id"], "value": value, "blob": blob}
        session.wire.send(header, b"", (descriptor,))
        os.close(descriptor)

    fake.on("x", handler)
    with Sandbox() as sbx:
        assert sbx.run("x").value == b""


def test_malformed_values_and_displays_harm_only_the_guest(fake: FakeSupervisor) -> None:
    def handler(session: FakeSession, cell: Received) -> None:
        data = {"text/plain": "shown", "text/html": {"type": "no such type"}}
        session.wire.send({"kind": "display", "id": 1, "data": data, "main": False})
        session.wire.send({**OUTCOME, "id": cell.header["id"], "value": {"type": "ndarray"}})

    fake.on("lie", handler)
    with Sandbox() as sbx:
        execution = sbx.run("lie")
        assert execution.ok
        assert isinstance(execution.value, sandfork.Opaque)
        assert execution.value.name == "malformed"
        assert execution.results[0].formats() == ["text"]
        assert sbx.run("1").value == 1


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("policy", sandfork.PolicyError),
        ("host", sandfork.HostError),
        ("interpreter", sandfork.InterpreterError),
        ("not-enforced", sandfork.NotEnforced),
        ("request", sandfork.RequestError),
        ("system", sandfork.SystemFailure),
        ("protocol", sandfork.ProtocolError),
        ("of-tomorrow", sandfork.SandforkError),
    ],
)
def test_failed_session_opening_gives_the_reason(
    fake: FakeSupervisor, word: str, kind: type[Exception]
) -> None:
    fake.on("open", lambda session, request: session.error(word, "the sentence"))
    before = opened()
    with pytest.raises(kind, match="the sentence") as caught:
        Sandbox(tools={"f": print}, variables={"x": bytes(1 << 20)})
    assert type(caught.value) is kind
    with pytest.raises(kind, match="the sentence"):
        sandfork.run("1")
    fake.close()
    assert_closed_since(before)


@pytest.mark.parametrize("word", ["request", "busy"])
def test_cell_that_did_not_run_gives_the_reason(fake: FakeSupervisor, word: str) -> None:
    fake.on("no", lambda session, cell: session.error(word, "the sentence", cell.header["id"]))
    with Sandbox() as sbx:
        with pytest.raises(sandfork.SandforkError, match="the sentence"):
            sbx.run("no")
        assert sbx.run("1").value == 1


@pytest.mark.parametrize("word", ["request", "system", "session-ended"])
def test_unsolicited_error_ends_the_connection(fake: FakeSupervisor, word: str) -> None:
    error = run(fake, lambda session, cell: session.error(word, "the sentence"))
    assert type(error) is sandfork.SupervisorError
    assert str(error) == "the sentence"


@pytest.mark.parametrize("number", [None, 77])
@pytest.mark.parametrize("kind", ["error", "outcome", "file"])
def test_unsolicited_reply_settles_no_request(fake: FakeSupervisor, kind: str, number: Any) -> None:
    def handler(session: FakeSession, cell: Received) -> None:
        session.output("one")
        session.wire.send({**OUTCOME, "kind": kind, "id": number})
        session.outcome(cell)

    def fail(text: str) -> None:
        raise LookupError(text)

    fake.on("fault", handler)
    with Sandbox() as sbx:
        with pytest.raises(LookupError):
            sbx.run("fault", on_stdout=fail)
        with pytest.raises(sandfork.SessionEnded, match="its caller left it in the middle"):
            sbx.run("1")


def test_restart_accepts_only_its_own_reply(fake: FakeSupervisor) -> None:
    fake.on("restart", lambda session, request: session.opened())
    with Sandbox() as sbx, pytest.raises(sandfork.ProtocolError, match="sent 'opened' when"):
        sbx.restart()


def test_a_supervisor_of_another_release_is_named(fake: FakeSupervisor) -> None:
    fake.on("open", lambda session, request: session.opened(version=3))
    with pytest.raises(sandfork.ProtocolError, match="version 3 of the protocol and this package version 2"):
        Sandbox()


def test_unsettable_variables_are_rejected(fake: FakeSupervisor) -> None:
    error = {"name": "MemoryError", "message": "no room", "traceback": ""}
    fake.on("set", lambda session, request: session.outcome(request, status="exception", error=error))
    with pytest.raises(sandfork.RequestError, match="could not be given the variables: no room"):
        Sandbox(variables={"x": 1})
    with Sandbox() as sbx:
        with pytest.raises(sandfork.RequestError, match="no room"):
            sbx.set(x=1)
        assert sbx.run("1").value == 1
        fake.on("set", lambda session, request: session.outcome(request, status="signal", session="ended"))
        with pytest.raises(sandfork.SessionEnded, match=r"while it was given the variables \(signal\)"):
            sbx.set(x=1)

"""The core of both clients, without a supervisor, sockets or threads: frames in, actions out."""

from __future__ import annotations

import json
import os
import struct
from typing import Any, Callable

import pytest

import sandfork
from sandfork import Execution, Tool, _blobs, _conversation
from sandfork._batch import Batch, Source
from sandfork._calls import Calls
from sandfork._conversation import (
    Actions,
    Connect,
    Interrupt,
    Invoke,
    Notify,
    Receive,
    Send,
    SendCell,
    StandBy,
)
from sandfork._frames import Decoder, Frame
from sandfork._session import Callbacks, Cell, Session

from .support.fake import ENFORCED, LIMITS, POLICY, USAGE
from .support.wire import passed_file

PYTHON = {"executable": "/usr/bin/python3", "version": "3.11.2", "environment": "/usr"}
REPORT = {"version": 2, "enforced": ENFORCED, "policy": POLICY, "python": PYTHON, "limits": LIMITS}
OPENED = {"kind": "opened", **REPORT}
OUTCOME = {
    "kind": "outcome",
    "outcome": {"status": "ok", "usage": USAGE, "denied": []},
    "session": "live",
    "execution_count": 1,
}
INTERRUPTED = {**OUTCOME, "outcome": {"status": "interrupted", "usage": USAGE}}


class Script:
    """Performs the actions of a conversation as a test tells it to."""

    def __init__(self, conversation: Actions[Any]) -> None:
        self.conversation = conversation
        self.decoder = Decoder()
        self.result: Any = None
        self.action: Any = next(conversation)

    def __call__(self, kind: type, result: Any = None) -> Any:
        """Checks the kind of the next action, which has this result. Returns the action."""
        action = self.action
        assert type(action) is kind
        return self._resume(action, lambda: self.conversation.send(result))

    def connect(self) -> None:
        self.decoder = Decoder()
        self(Connect, (self.decoder, None, {"environ": {"TZ": None}, "import_paths": ["/srv"]}))

    def sent(self, kind: type = Send) -> dict[str, Any]:
        """The header of the next message."""
        (header,) = headers(self(kind).data)
        return header

    def receive(self, header: dict[str, Any], payload: bytes = b"") -> None:
        self(Receive, Frame(header, payload))

    def fail(self, error: BaseException) -> None:
        """The next action fails."""
        self._resume(self.action, lambda: self.conversation.throw(error))

    def _resume(self, action: Any, resume: Callable[[], Any]) -> Any:
        try:
            self.action = resume()
        except StopIteration as end:
            self.action, self.result = None, end.value
        return action


def headers(data: bytes) -> list[dict[str, Any]]:
    found = []
    while data:
        lengths = struct.unpack_from("<II", data)
        found.append(json.loads(data[8 : 8 + lengths[0]]))
        data = data[8 + sum(lengths) :]
    return found


def is_settled(made: Session) -> bool:
    """Whether every request is answered."""
    return not made.under_way and not made._establishing


def session(*tools: Tool, revive: bool = False, **options: Any) -> Session:
    """A session that is not open yet."""
    opening = {"kind": "open", "policy": {"name": "standard"}, "set": []}
    calls = Calls({tool.name: tool for tool in tools}, **options)
    return Session(opening, calls, revive=revive)


def opened(*tools: Tool, **options: Any) -> Session:
    """An open session without a first cell."""
    made = session(*tools, **options)
    script = Script(made.open())
    script.connect()
    script(Send)
    if tools:
        script(Send)
    script.receive(OPENED)
    if tools:
        script.receive({**OUTCOME, "id": 1})
    assert script.action is None
    return made


def run(made: Session, callbacks: Callbacks = Callbacks()) -> Script:  # noqa: B008, which is immutable
    """A cell that was sent."""
    script = Script(made.run(Cell(b"x", callbacks=callbacks)))
    script(SendCell)
    if type(script.action) is StandBy:
        script(StandBy)
    # A driver sets `running` while it writes the cell.
    made.running = True
    return script


def test_a_session_is_set_up_in_one_exchange() -> None:
    made = Session(
        {"kind": "open", "policy": {"name": "strict"}, "set": []},
        Calls({"f": Tool("f", print, doc="", signature="")}),
        variables={"x": 1},
    )
    script = Script(made.open())
    script.connect()
    assert script.sent() == {
        "kind": "open",
        "version": 2,
        "policy": {"name": "strict"},
        "set": [],
        "environ": {"TZ": None},
        "import_paths": ["/srv"],
    }
    # The client sends the tools before the session is open, and the variables after the tools were accepted.
    assert script.sent()["kind"] == "tools"
    script.receive(OPENED)
    assert not is_settled(made)
    script.receive({**OUTCOME, "id": 1})
    assert script.sent() == {"kind": "set", "variables": [["x", 1]], "id": 2}
    script.receive({**OUTCOME, "id": 2})
    assert script.action is None
    assert is_settled(made)
    assert made.info is not None
    assert made.info.limits == LIMITS


def test_cell_is_received_until_its_end() -> None:
    seen: list[Any] = []
    script = run(opened(), Callbacks(seen.append, None, seen.append))
    for piece in (b"a\xe2\x82", b"\xac", b"\xff"):
        script.receive({"kind": "output", "id": 1, "stream": "stdout"}, piece)
        called = script(Notify)
        called.call()
    script.receive({"kind": "output", "id": 1, "stream": "stderr"}, b"\xe2")
    script.receive({"kind": "display", "id": 1, "data": {"text/plain": "shown"}})
    script(Notify).call()
    script.receive({**OUTCOME, "id": 1, "value": 42})
    execution = script.result
    assert isinstance(execution, Execution)
    assert execution.value == 42
    assert execution.logs.stdout == ["a", "\u20ac", "\ufffd"]
    assert execution.logs.stderr == ["\ufffd"]
    assert [seen[0], seen[1], seen[2], seen[3].text] == ["a", "\u20ac", "\ufffd", "shown"]


def test_call_is_executed_and_returns_its_result() -> None:
    asked: list[Any] = []
    given: list[Any] = []

    def f(*args: Any, **kwargs: Any) -> None:
        given.append((args, kwargs))

    made = opened(Tool("f", f, timeout=3), approve=lambda *asking: asked.append(asking))
    script = run(made)
    call = {"kind": "call", "id": 2, "call": 7, "tool": "f", "args": [1], "kwargs": {"k": 2}}
    script.receive(call)
    script(Invoke, True)
    invoked = script(Invoke, "answer")
    assert (invoked.args, invoked.kwargs, invoked.timeout) == ((1,), {"k": 2}, 3)
    invoked.call()
    assert given == [((1,), {"k": 2})]
    assert script.sent() == {"kind": "return", "call": 7, "value": "answer"}
    script.receive(call)
    script(Invoke, "not today")
    error = {"name": "PermissionError", "message": "the call of f was denied: not today"}
    assert script.sent() == {"kind": "return", "call": 7, "error": error}
    script.receive(call)
    script.fail(LookupError("no rule"))
    assert script.sent()["error"] == {"name": "LookupError", "message": "no rule"}
    script.receive(call)
    with pytest.raises(KeyboardInterrupt):
        script.fail(KeyboardInterrupt())


def test_ids_are_preserved_exactly() -> None:
    for forged in ({"id": 2}, {"id": 0}, {"id": None}, {}):
        script = run(opened())
        with pytest.raises(sandfork.ProtocolError, match="'outcome' when nothing of the kind was due"):
            script.receive({**OUTCOME, **forged})


def test_guest_output_is_not_a_message() -> None:
    forged = struct.pack("<II", 2, 0) + b"{}"
    script = run(opened())
    script.receive({"kind": "output", "id": 1, "stream": "stdout"}, forged)
    script.receive({**OUTCOME, "id": 1})
    assert "".join(script.result.logs.stdout) == forged.decode()


@pytest.mark.parametrize("ends", [INTERRUPTED, {"kind": "error", "error": "request", "message": "no"}])
def test_an_abandoned_cell_is_interrupted_and_settled(ends: dict[str, Any]) -> None:
    made = opened()
    script = run(made)
    script.conversation.close()
    settling = Script(made.settle())
    settling(Interrupt)
    assert settling.action.deadline is not None
    settling.receive({"kind": "output", "id": 1, "stream": "stdout"}, b"late")
    settling.receive({"kind": "call", "id": 1, "call": 3, "tool": "f", "args": []})
    assert settling.sent()["error"]["message"] == "the caller was interrupted"
    settling.receive({**ends, "id": 1})
    assert settling.result is True
    assert (is_settled(made), made.running, made.ended) == (True, False, None)


def test_a_cell_that_does_not_end_is_not_settled() -> None:
    made = opened()
    run(made)
    settling = Script(made.settle())
    settling(Interrupt)
    settling(Receive, None)
    assert settling.result is False
    assert not is_settled(made)


def test_a_cell_that_only_prints_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = opened()
    run(made)
    monkeypatch.setattr(_conversation, "_GRACE", 0.0)
    settling = Script(made.settle())
    settling(Interrupt)
    settling.receive({"kind": "output", "id": 1, "stream": "stdout"}, b"more")
    assert (settling.action, settling.result) == (None, False)


def test_session_that_ends_while_settling_is_reported() -> None:
    made = opened()
    run(made)
    settling = Script(made.settle())
    settling(Interrupt)
    settling.receive({**INTERRUPTED, "id": 1, "session": "ended"})
    assert settling.result is True
    with pytest.raises(sandfork.SessionEnded, match="when its caller was interrupted.*restart"):
        Script(made.run(Cell(b"x")))


def test_a_lost_connection_is_never_settled() -> None:
    made = opened()
    run(made)
    made.lose(None, torn=True)
    with pytest.raises(StopIteration) as end:
        next(made.settle())
    assert end.value.value is False
    assert (made.decoder, made.running) == (None, False)
    with pytest.raises(sandfork.SessionEnded, match="in the middle of a message"):
        Script(made.run(Cell(b"x")))


def test_session_is_not_settled_during_setup() -> None:
    made = session(Tool("f", print))
    script = Script(made.open())
    script.connect()
    script(Send)
    with pytest.raises(StopIteration) as end:
        next(made.settle())
    assert end.value.value is False


def test_unclaimed_file_loses_the_session() -> None:
    script = Script((made := session()).open())
    script.connect()
    script(Send)
    script.receive(OPENED)
    script.decoder.feed(b"", [passed_file(b"secret")])
    with pytest.raises(StopIteration) as end:
        next(made.settle())
    assert end.value.value is False


def test_open_is_retried_if_the_supervisor_dies_before_its_reply() -> None:
    script = Script(session().open())
    script.connect()
    script(Send)
    script.fail(sandfork.SupervisorDied("gone"))
    script.connect()
    script(Send)
    with pytest.raises(sandfork.SupervisorDied, match="again"):
        script.fail(sandfork.SupervisorDied("again"))


def test_session_ended_between_cells_is_replaced_if_configured() -> None:
    made = opened(revive=True)
    script = run(made)
    script.receive({"kind": "error", "error": "session-ended", "message": "idle", "id": 1})
    assert script.sent() == {"kind": "restart", "id": 2}
    script.receive({**OPENED, "id": 2})
    script(SendCell)
    script(StandBy)
    script.receive({**OUTCOME, "id": 3})
    assert script.result.restarted


def test_the_end_of_a_session_between_two_cells_has_one_remedy() -> None:
    script = run(opened())
    said = "the session has ended because it waited: its files are lost; restart it, or open another"
    ended = {"kind": "error", "error": "session-ended", "message": said, "why": "it waited", "id": 1}
    with pytest.raises(sandfork.SessionEnded) as raised:
        script.receive(ended)
    assert str(raised.value) == (
        "the session has ended because it waited: variables, imports and files are lost; call restart(), or "
        'open sessions with on_death="restart"'
    )


def test_a_run_is_one_message() -> None:
    read, write = os.pipe()
    made = Session({"kind": "open", "policy": {}, "set": []}, Calls(), stdin=read)
    script = Script(made.once(Cell(b"x", then="end")))
    script.connect()
    first = script(Send)
    assert first.descriptor == read
    assert [header["kind"] for header in headers(first.data)] == ["open", "cell"]
    script.receive(OPENED)
    assert made.running
    script(StandBy)
    script.receive({**OUTCOME, "id": 1, "session": "ended"})
    assert script.result.session == "ended"
    made.release()
    os.close(write)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)


def test_the_file_of_a_value_is_closed_once_it_is_sent_or_not() -> None:
    for fails in (False, True):
        made = opened()
        script = Script(made.set_variables({"x": bytes(_blobs._values.SHARED + 1)}))
        descriptor = script.action.descriptor
        assert os.fstat(descriptor).st_size > _blobs._values.SHARED
        if fails:
            with pytest.raises(KeyboardInterrupt):
                script.fail(KeyboardInterrupt())
        else:
            script(Send)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_batch_sends_no_more_tasks_than_its_window() -> None:
    progress: list[Any] = []
    opening = {"kind": "map", "policy": {}, "set": [], "order": "finished"}
    batch = Batch(opening, Source(iter(["1", "2"])), 2, progress.append)
    script = Script(batch.next())
    script.connect()
    assert script.sent()["kind"] == "map"
    script.receive({"kind": "mapping", **REPORT, "window": 1})
    assert script.sent()["id"] == 0
    script.receive({"kind": "output", "id": 0, "stream": "stdout"}, b"said")
    done = {"kind": "done", "outcome": OUTCOME["outcome"], "enforced": ENFORCED, "attempts": 1}
    script.receive({**done, "id": 0, "value": 1})
    script(Notify).call()
    assert (script.result.value, script.result.stdout) == (1, "said")
    script = Script(batch.next())
    assert script.sent()["id"] == 1
    # The next supervisor gets the tasks without a result.
    script.fail(sandfork.SupervisorDied("gone"))
    script.connect()
    script(Send)
    script.receive({"kind": "mapping", **REPORT, "window": 2})
    assert script.sent()["id"] == 1
    assert script.sent() == {"kind": "end"}
    script.receive({**done, "id": 1, "value": 2})
    script(Notify).call()
    script = Script(batch.next())
    script.receive({"kind": "closed"})
    assert script.result is None
    assert [(one.done, one.total) for one in progress] == [(1, 2), (2, 2)]
    with pytest.raises(StopIteration) as end:
        next(batch.settle())
    assert end.value.value is False

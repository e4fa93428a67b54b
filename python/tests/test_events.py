"""Output for operators: counters, usage, and the records of `logging`."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

import sandfork
from sandfork import Sandbox

from .support.fake import USAGE, FakeSession, FakeSupervisor, ends_when_interrupted
from .support.fake_batch import FakeBatch, Serve
from .support.wire import Received

LATE = {"status": "timeout", "exit_code": 124, "limit": {"name": "limits.wall", "by": "deadline"}}


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="sandfork")
    return caplog


def events(records: pytest.LogCaptureFixture) -> list[tuple[str, int, str]]:
    return [(vars(r)["event"], r.levelno, r.getMessage().split(" ", 2)[2]) for r in records.records]


def since(before: sandfork.Stats) -> tuple[dict[str, int], dict[str, int]]:
    """The refusals and the endings since then, counted by name."""
    now = sandfork.stats()
    return (
        {k: n - before.refused.get(k, 0) for k, n in now.refused.items() if n != before.refused.get(k, 0)},
        {k: n - before.ended.get(k, 0) for k, n in now.ended.items() if n != before.ended.get(k, 0)},
    )


def test_a_session_is_logged_from_its_start_to_its_end(
    fake: FakeSupervisor, records: pytest.LogCaptureFixture
) -> None:
    fake.on("late", lambda session, cell: session.outcome(cell, **LATE))
    with Sandbox() as sbx:
        sbx.run("1")
        sbx.run("late")
        number, policy = sbx.info.session, sbx.info.policy.name
    under = f"under policy {policy!r}"
    assert events(records) == [
        ("started", logging.INFO, f"{under} has started at level 'full'"),
        ("cell-ended", logging.DEBUG, f"{under} cell 1 ended: ok"),
        ("limit", logging.WARNING, f"{under} cell 2 reached its limit limits.wall"),
        ("ended", logging.INFO, f"{under} has ended: closed"),
    ]
    assert {(vars(r)["session"], vars(r)["policy"]) for r in records.records} == {(number, policy)}
    assert records.records[2].getMessage().startswith(f"session {number} under")
    late = vars(records.records[2])
    assert (late["status"], late["limit"]) == ("timeout", "limits.wall")


def test_a_refusal_is_logged_and_counted(fake: FakeSupervisor, records: pytest.LogCaptureFixture) -> None:
    before = sandfork.stats()
    fake.on("ask", lambda session, cell: session.error("busy", "no room", cell.header["id"]))
    with Sandbox() as sbx:
        with pytest.raises(sandfork.SessionBusy):
            sbx.run("ask")
        with pytest.raises(sandfork.UndefinedVariable):
            sbx.get("nothing")
    assert since(before)[0] == {"SessionBusy": 1}
    (record,) = [r for r in records.records if vars(r)["event"] == "refused"]
    assert record.levelno == logging.WARNING
    assert vars(record)["error"] == "SessionBusy"


def test_unopened_session_logs_no_end(fake: FakeSupervisor, records: pytest.LogCaptureFixture) -> None:
    before = sandfork.stats()
    fake.on("open", lambda session, request: session.error("policy", "there is no such policy"))
    for open_one in (lambda: sandfork.run("1"), Sandbox):
        with pytest.raises(sandfork.PolicyError):
            open_one()
    gc.collect()
    assert since(before) == ({"PolicyError": 2}, {})
    assert sandfork.stats().waiting == before.waiting
    assert events(records) == 2 * [("refused", logging.WARNING, "was refused: PolicyError")]


def test_tasks_are_counted_and_logged(serve: Serve, records: pytest.LogCaptureFixture) -> None:
    before, loads = sandfork.stats(), []

    def script(batch: FakeBatch) -> None:
        batch.begin(jobs=1)
        tasks = [batch.task() for _ in range(3)]
        assert None not in tasks
        loads.append(sandfork.stats())
        batch.done(0)
        batch.lost(1, "system", "no process left")
        batch.done(2, outcome={"usage": USAGE, "denied": [], "error": None, **LATE})
        assert batch.task() is None
        batch.close()

    serve(script)
    results = list(sandfork.map(["1", "2", "3"]))
    assert [result.status for result in results] == ["ok", "infrastructure", "timeout"]
    assert since(before) == ({"SystemFailure": 1}, {"ok": 1, "timeout": 1})
    assert (loads[0].sessions, loads[0].running) == (before.sessions + 1, before.running + 1)
    # The third task may not have arrived yet.
    assert loads[0].waiting - before.waiting in (1, 2)
    assert [event for event, _, _ in events(records)] == [
        *("started", "cell-ended", "refused", "limit", "ended"),
    ]
    assert vars(records.records[3])["task"] == 2


def test_running_and_ended_work_is_counted(fake: FakeSupervisor) -> None:
    before = sandfork.stats()
    runs = threading.Event()

    def forever(session: FakeSession, cell: Received) -> None:
        runs.set()
        ends_when_interrupted(session, cell)

    fake.on("forever", forever)
    with Sandbox() as sbx:
        assert sandfork.stats().sessions == before.sessions + 1
        runner = threading.Thread(target=sbx.run, args=("forever",))
        runner.start()
        assert runs.wait(60)
        assert sandfork.stats().running == before.running + 1
        sbx.interrupt()
        runner.join(60)
        assert sandfork.stats().running == before.running
    now = sandfork.stats()
    assert (now.sessions, now.waiting) == (before.sessions, before.waiting)
    assert sum(since(before)[1].values()) == 1
    forgotten = Sandbox()
    del forgotten
    gc.collect()
    assert sandfork.stats().sessions == before.sessions


def test_the_info_of_a_sandbox_has_its_usage(fake: FakeSupervisor) -> None:
    with Sandbox() as sbx:
        assert sbx.info.cells == 0
        for _ in range(3):
            execution = sbx.run("1")
        info, usage = sbx.info, execution.usage
        assert info.cells == 3
        assert info.usage is not None
        assert info.usage.cpu_ms == pytest.approx(3 * usage.cpu_ms)
        assert info.usage.output_bytes == 3 * usage.output_bytes
        assert info.usage.peak_memory_bytes == usage.peak_memory_bytes
        sbx.restart()
        sbx.run("1")
        assert sbx.info.cells == 4


def test_failing_log_handler_loses_no_result(fake: FakeSupervisor) -> None:
    def fails(record: logging.LogRecord) -> Any:
        raise RuntimeError("a filter of the host")

    logger = logging.getLogger("sandfork")
    logger.addFilter(fails)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        with Sandbox() as sbx:
            assert sbx.run("6 * 7").value == 42
    finally:
        logger.removeFilter(fails)
        logger.setLevel(level)


def test_forked_process_resets_its_counts(fake: FakeSupervisor) -> None:
    with Sandbox() as sbx:
        sbx.run("1")
        child = os.fork()
        if child == 0:
            empty = sandfork.Stats(0, 0, 0, {}, {})
            os._exit(0 if sandfork.stats() == empty else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_logging_is_neither_imported_nor_used_by_default() -> None:
    code = """
import sys
import sandfork
assert "logging" not in sys.modules, "it was imported"
from sandfork import _events
class Conversation:
    noun, number, info = "session", 1, None
_events.report(Conversation(), 30, "limit", "reached its limit")
import logging
_events.report(Conversation(), 30, "limit", "reached its limit")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")

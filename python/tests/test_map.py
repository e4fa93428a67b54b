"""Batches against a scripted supervisor: the messages that are sent and repeated, and the exceptions."""

from __future__ import annotations

import asyncio
import json
import pathlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import sandfork
from sandfork import Task, TaskResult

from .support.fake_batch import FakeBatch, Serve, all_ok


def sent_as(serve: Serve, task: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the line of a task."""
    heard: list[Any] = []

    def script(batch: FakeBatch) -> None:
        batch.begin()
        for received in iter(batch.task, None):
            heard.append((received.header, json.loads(received.payload)))
            batch.done(received.header["id"])
        batch.close()

    serve(script)
    (result,) = sandfork.map([task])
    assert result.ok
    ((header, line),) = heard
    return header, line


def test_a_task_is_sent_as_a_line(serve: Serve, tmp_path: pathlib.Path) -> None:
    assert sent_as(serve, "1 + 1")[1] == {"id": 0, "code": "1 + 1"}
    task = Task("x", args=["a"], files={"f/g": b"\xff", "h": "é"}, stdin=b"in", limits={"wall": "2s"})
    assert sent_as(serve, task)[1] == {
        "id": 0,
        "code": "x",
        "args": ["a"],
        "files": {"f/g": {"base64": "/w=="}, "h": "é"},
        "stdin": {"base64": "aW4="},
        "limits": {"wall": "2s"},
    }
    assert sent_as(serve, {"program": ("sh", "-c", "true"), "code": None, "id": "mine"})[1] == {
        "id": 0,
        "program": ["sh", "-c", "true"],
    }
    # A task in the form of a line of a task file.
    line = {"id": 7, "code": "x", "files": {"f": {"base64": "/w=="}}, "stdin": "in", "limits": {}}
    assert sent_as(serve, line)[1] == {**line, "id": 0}
    script = tmp_path / "script.py"
    script.write_bytes("# coding: latin-1\n'é'".encode("latin-1"))
    header, line = sent_as(serve, Task(file=script))
    assert (header["filename"], line["code"]) == (str(script), "# coding: latin-1\n'é'")


def test_batch_is_opened_with_its_settings(serve: Serve) -> None:
    fake = serve(all_ok)
    policy = sandfork.Policy(limits={"pids": 4})
    assert list(sandfork.map([], policy=policy, timeout=1.5, jobs=3, ordered=True)) == []
    (opening,) = fake.openings
    assert opening["policy"]["toml"] == policy.to_toml()
    assert opening["set"] == ["stdio.stdin=pass", "limits.wall=1500ms"]
    assert (opening["kind"], opening["jobs"], opening["order"]) == ("map", 3, "given")


@pytest.mark.parametrize(
    "arguments",
    [
        {"jobs": 0},
        {"jobs": 4097},
        {"jobs": True},
        {"timeout": 0},
        {"timeout": 1e300},
        {"timeout": "1"},
        {"policy": 3},
    ],
)
def test_arguments_are_checked_at_once(arguments: Any) -> None:
    with pytest.raises(sandfork.RequestError, match=next(iter(arguments))):
        sandfork.map(["1"], **arguments)
    with pytest.raises(sandfork.RequestError, match=next(iter(arguments))):
        sandfork.async_map(["1"], **arguments)


@pytest.mark.parametrize("tasks", ["print(1)", b"1", {"code": "1"}, Task("1"), 3, None])
def test_single_task_is_not_an_iterable(tasks: Any) -> None:
    with pytest.raises(sandfork.RequestError, match=r"tasks is of type .*: give an iterable"):
        sandfork.map(tasks)
    with pytest.raises(sandfork.RequestError, match=r"tasks is of type .*: give an iterable"):
        sandfork.async_map(tasks)


CYCLE: dict[str, Any] = {}
CYCLE["wall"] = CYCLE


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (3, "task 2 is of type int: give code, a Task, or a dict"),
        (Task("x", files={"f": 3}), r"task 2: files.f is of type int: give text or bytes"),  # type: ignore[dict-item]
        (Task("x", files={3: "x"}), "task 2: files has a key of type int"),  # type: ignore[dict-item]
        (Task("x", stdin=3), "task 2: stdin is of type int"),  # type: ignore[arg-type]
        (Task("x", args="abc", id="name"), r"task 'name' \(number 2, from 0\): args is a str"),
        (Task("x", args=[1], id="n" * 99), r"task 'n{76}\.\.\. \(number 2, from 0\): args has a int"),  # type: ignore[list-item]
        (Task("\ud800"), "task 2: it has a text with a lone surrogate"),
        ({"code": "x", "limits": {"wall": {2}}}, "task 2: it cannot be written as JSON"),
        ({"code": "x", "limits": CYCLE}, "task 2: it cannot be written as JSON"),
        (
            Task("x", expect={"value": {1: 2}}),
            "task 2: expect has the key 1, and only dicts whose keys are texts",
        ),
        (Task("x", expect={"value": [("a", {"b": {None: 1}})]}), "task 2: expect has the key None"),
        (Task("x", expect={"value": {True: 1}}), "task 2: expect has the key True"),
        (Task(file="/nothing/here.py"), "task 2: its file cannot be read: .*No such file"),
    ],
)
def test_invalid_task_is_raised_after_earlier_results(serve: Serve, task: Any, said: str) -> None:
    serve(all_ok)
    results = sandfork.map(["1", "2", task, "3"])
    assert [next(results).value, next(results).value] == [0, 1]
    with pytest.raises(sandfork.RequestError, match=said):
        next(results)
    assert next(results, None) is None


def test_a_task_that_is_too_large_is_refused(serve: Serve) -> None:
    serve(all_ok)
    with pytest.raises(sandfork.ValueTooLarge, match="task 0: it takes .* keep data out of it"):
        list(sandfork.map([Task("x", files={"f": "x" * (16 << 20)})]))


def test_exception_of_the_iterable_is_raised_after_earlier_results(serve: Serve) -> None:
    def tasks() -> Iterator[str]:
        yield "1"
        raise LookupError("no more")

    serve(all_ok)
    results = sandfork.map(tasks())
    assert next(results).value == 0
    with pytest.raises(LookupError, match="no more"):
        next(results)

    async def both() -> AsyncIterator[str]:
        yield "1"
        raise LookupError("no more")

    async def main() -> None:
        results = sandfork.async_map(both())
        assert (await results.__anext__()).value == 0
        with pytest.raises(LookupError, match="no more"):
            await results.__anext__()

    serve(all_ok)
    asyncio.run(main())


def test_supervisor_error_is_raised_after_earlier_results(serve: Serve) -> None:
    def script(batch: FakeBatch) -> None:
        batch.begin()
        for _ in range(3):
            batch.task()
        batch.error("request", "unknown key `cod`", id=1)
        batch.done(0, "first")
        batch.close()

    serve(script)
    results = sandfork.map([{"code": "1", "id": "a"}, {"cod": "1", "id": "b"}, "2"])
    assert next(results).value == "first"
    with pytest.raises(sandfork.RequestError, match=r"task 'b' \(number 1, from 0\): unknown key `cod`"):
        next(results)


def test_no_more_tasks_are_taken_than_the_window(serve: Serve) -> None:
    serve(all_ok)
    taken: list[int] = []
    for result in sandfork.map(taken.append(n) or str(n) for n in range(50)):
        # At most four tasks are in flight.
        assert len(taken) <= result.index + 4
    assert len(taken) == 50


def test_task_without_a_sandbox_has_a_result(serve: Serve) -> None:
    def script(batch: FakeBatch) -> None:
        batch.begin()
        for task in iter(batch.task, None):
            number = task.header["id"]
            if number == 1:
                batch.lost(1, "system", "no room")
            else:
                batch.done(number, stdout=b"\xc3\xa9", attempts=2 if number else 1)
        batch.close()

    serve(script)
    told: list[sandfork.Progress] = []
    good, lost, again = sandfork.map(["1", "2", "3"], on_progress=told.append)
    assert (good.status, good.ok, good.stdout, good.stderr, good.attempts) == ("ok", True, "é", "", 1)
    assert (lost.status, lost.ok, lost.value, lost.attempts) == ("infrastructure", False, None, 4)
    assert (lost.execution, lost.stdout, lost.stderr) == (None, "", "")
    assert isinstance(lost.failure, sandfork.SystemFailure)
    assert str(lost.failure) == "no room"
    assert again.attempts == 2
    assert good.execution is not None
    assert (good.execution.enforced.level, good.execution.policy.name) == ("full", "standard")
    assert [(p.done, p.failed, p.lost, p.total) for p in told] == [(1, 0, 0, 3), (2, 0, 1, 3), (3, 0, 1, 3)]
    assert told[0].rate > 0
    assert told[2].remaining == 0.0


def test_task_that_no_sandbox_can_execute_is_refused(serve: Serve) -> None:
    def script(batch: FakeBatch) -> None:
        batch.begin()
        batch.task()
        batch.lost(0, "request", "no")
        batch.close()

    serve(script)
    told: list[sandfork.Progress] = []
    (refused,) = sandfork.map(["1"], on_progress=told.append)
    assert (refused.status, refused.ok, refused.execution) == ("refused", False, None)
    assert isinstance(refused.failure, sandfork.RequestError)
    assert refused.to_dict()["status"] == "refused"
    assert [(p.done, p.failed, p.lost) for p in told] == [(1, 1, 0)]


def test_exhausted_host_raises_an_error(serve: Serve) -> None:
    def script(batch: FakeBatch) -> None:
        batch.begin()
        batch.task()
        batch.lost(0, "host", "no namespaces")
        batch.error("host", "16 tasks in a row got no sandbox")
        batch.close()

    serve(script)
    results = sandfork.map(str(n) for n in range(100))
    assert next(results).status == "infrastructure"
    with pytest.raises(sandfork.HostError, match="16 tasks in a row"):
        next(results)


@pytest.mark.parametrize("word", ["policy", "host", "interpreter", "not-enforced"])
def test_failed_start_raises_at_the_first_result(serve: Serve, word: str) -> None:
    serve(lambda batch: batch.error(word, "why"))
    results = sandfork.map(["1"])
    with pytest.raises(sandfork.SandboxUnavailable, match="why"):
        next(results)
    assert list(results) == []


def test_tasks_whose_supervisor_died_are_sent_again(serve: Serve) -> None:
    def dies(batch: FakeBatch) -> None:
        batch.begin()
        for _ in range(4):
            batch.task()
        batch.done(1, "before")

    heard: list[int] = []

    def goes_on(batch: FakeBatch) -> None:
        batch.begin()
        for task in iter(batch.task, None):
            heard.append(task.header["id"])
            batch.done(task.header["id"], "after")
        batch.close()

    serve(dies, goes_on)
    results = {result.id: result.value for result in sandfork.map(["0", "1", "2", "3", "4", "5"])}
    assert results == {0: "after", 1: "before", 2: "after", 3: "after", 4: "after", 5: "after"}
    assert sorted(heard) == [0, 2, 3, 4, 5]


def test_supervisor_with_a_smaller_window_gets_fewer_tasks(serve: Serve) -> None:
    def dies(batch: FakeBatch) -> None:
        batch.begin(window=4)
        for _ in range(4):
            batch.task()
        batch.done(1)

    early: list[bool] = []

    def goes_on(batch: FakeBatch) -> None:
        batch.begin(window=2)
        waiting = []
        for task in iter(batch.task, None):
            waiting.append(task.header["id"])
            if len(waiting) == 2:
                early.append(batch.wire.has_more(0.1))
                batch.done(waiting.pop(0))
        for number in waiting:
            batch.done(number)
        batch.close()

    serve(dies, goes_on)
    results = sandfork.map(["0", "1", "2", "3", "4", "5"])
    assert [result.id for result in results] == [1, 0, 2, 3, 4, 5]
    assert early == [False] * 4


def test_repeated_supervisor_deaths_end_the_batch(serve: Serve) -> None:
    def dies(batch: FakeBatch) -> None:
        batch.begin()
        batch.task()

    fake = serve(dies, lambda batch: None, dies)
    results = sandfork.map(["0", "1"])
    with pytest.raises(sandfork.SupervisorDied, match="3 supervisors in a row ended before"):
        next(results)
    assert fake.scripts == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"kind": "closed"}, "closed a batch whose results had not all come"),
        ({"kind": "done", "id": 0, "outcome": {}}, "an outcome without a status"),
        ({"kind": "done", "id": 9, "outcome": {"status": "ok"}}, "sent 'done' when"),
        ({"kind": "output", "id": None}, "sent 'output' when"),
        ({"kind": "opened"}, "sent 'opened' when"),
    ],
)
def test_nonsense_is_a_protocol_error(serve: Serve, answer: Any, said: str) -> None:
    def script(batch: FakeBatch) -> None:
        batch.begin()
        batch.task()
        batch.wire.send(answer)
        batch.task()

    serve(script)
    with pytest.raises(sandfork.ProtocolError, match=said):
        next(sandfork.map(["1", "2"]))
    serve(lambda batch: batch.begin(version=3))
    with pytest.raises(sandfork.ProtocolError, match="version 3 of the protocol"):
        next(sandfork.map(["1"]))
    serve(lambda batch: batch.begin(window=0))
    with pytest.raises(sandfork.ProtocolError, match="'mapping'"):
        next(sandfork.map(["1"]))


def hears_its_end(batch: FakeBatch, ended: threading.Event) -> None:
    batch.begin()
    first = batch.task()
    assert first is not None
    batch.done(first.header["id"])
    while batch.wire.receive() is not None:
        pass
    ended.set()


@pytest.mark.parametrize("end", ["close", "with", "forget", "callback"])
def test_abandoned_batch_is_ended(serve: Serve, end: str) -> None:
    ended = threading.Event()
    serve(lambda batch: hears_its_end(batch, ended))

    def progress(_: object) -> None:
        if end == "callback":
            raise LookupError

    results = sandfork.map((str(n) for n in range(100)), on_progress=progress)
    if end == "callback":
        with pytest.raises(LookupError):
            next(results)
    else:
        assert isinstance(next(results), TaskResult)
    if end == "close":
        results.close()
        assert list(results) == []
        results.close()
    elif end == "with":
        with results:
            pass
    else:
        del results
    assert ended.wait(60)


def test_closing_from_another_thread_ends_the_wait(serve: Serve) -> None:
    ended = threading.Event()
    serve(lambda batch: hears_its_end(batch, ended))
    results = sandfork.map(["1", "2"])
    next(results)
    threading.Timer(0.1, results.close).start()
    assert next(results, "over") == "over"
    assert ended.wait(60)


def test_a_batch_has_one_caller_at_a_time(serve: Serve) -> None:
    ended = threading.Event()
    serve(lambda batch: hears_its_end(batch, ended))
    results = sandfork.map(["1", "2"])
    next(results)
    waits = threading.Thread(target=lambda: next(results, None))
    waits.start()
    while not results._driver._turns:
        pass
    with pytest.raises(sandfork.SessionBusy, match="the batch is running something"):
        next(results)
    results.close()
    waits.join()

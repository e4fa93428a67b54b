"""Batches with the real supervisor: the tasks that run, their cost, and leftovers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

import sandfork
from sandfork import Task, _batch
from sandfork._conversation import Actions

from ..support import processes
from ..support.descriptors import assert_closed_since, opened
from .test_processes import script, supervisor

FOREVER = "while True: pass"
SLEEPS = Task(program=["sleep", "25"])


def sleepers(family: set[processes.Process]) -> set[processes.Process]:
    """The sleeping guests among these processes. Idle workers are not included."""
    return {process for process in family if command_of(process).startswith(b"sleep\0")}


def command_of(process: processes.Process) -> bytes:
    try:
        return pathlib.Path(f"/proc/{process.number}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def wait_for_sleepers(count: int) -> set[processes.Process]:
    deadline = time.monotonic() + 60
    while True:
        found = sleepers(processes.descendants(supervisor()))
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_too_many_tasks_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    opens = _batch.Batch._open

    def opens_wide(batch: _batch.Batch) -> Actions[None]:
        yield from opens(batch)
        batch._window *= 10

    monkeypatch.setattr(_batch.Batch, "_open", opens_wide)
    results = sandfork.map(["1"] * 200, jobs=1)
    with pytest.raises(sandfork.ProtocolError, match="more than 4 tasks had no answer"):
        list(results)


def test_every_kind_of_task_and_of_end() -> None:
    tasks = [
        "6 * 7",
        {"id": "wrong", "code": "print('é'); 1 / 0"},
        Task("import sys; sys.exit(3)", id=("any", "thing")),
        Task(FOREVER, id="slow", limits={"wall": "200ms"}),
        Task("import os; os.kill(os.getpid(), 9)", id="killed"),
        Task(program=["sh", "-c", "cat; echo $0 >&2", "name"], stdin="in", id="shell"),
        Task("import sys; print(open('a/b').read(), *sys.argv[1:])", args=["x"], files={"a/b": b"f"}, id="f"),
        Task("import sys; sys.stdin.read()", id="nothing to read"),
    ]
    results = {result.id: result for result in sandfork.map(tasks, jobs=2)}
    assert {name: result.status for name, result in results.items()} == {
        0: "ok",
        "wrong": "exception",
        ("any", "thing"): "exit",
        "slow": "timeout",
        "killed": "signal",
        "shell": "exit",
        "f": "ok",
        "nothing to read": "ok",
    }
    assert results[0].value == 42
    wrong = results["wrong"].execution
    assert wrong is not None
    assert wrong.error is not None
    assert (results["wrong"].stdout, wrong.error.name) == ("é\n", "ZeroDivisionError")
    assert (wrong.session, wrong.enforced.level in ("full", "standard")) == ("ended", True)
    slow = results["slow"].execution
    assert slow is not None
    assert slow.error is not None
    assert "its limit of 200ms on the clock (limits.wall)" in slow.error.value
    assert (results["shell"].stdout, results["shell"].stderr) == ("in", "name\n")
    assert results["f"].stdout == "f x\n"
    assert results["nothing to read"].value == ""
    assert all(result.attempts == 1 for result in results.values())
    assert results[0].execution is not None
    usage = results[0].execution.usage
    assert usage.wall_ms > 0
    assert usage.phases is not None
    assert usage.phases["code"] > 0
    assert sandfork.run("1").usage.phases is None


def test_results_in_order_and_as_they_finish(tmp_path: pathlib.Path) -> None:
    assert [result.value for result in sandfork.map(map(str, range(12)), jobs=2, ordered=True)] == list(
        range(12)
    )
    os.chmod(tmp_path, 0o777)
    policy = sandfork.Policy(filesystem={"write": [tmp_path]})
    # The first task waits for the last one.
    last = str(tmp_path / "last")
    waits = f"import os, time\nwhile not os.path.exists({last!r}): time.sleep(0.005)\n0"
    codes = [waits, *map(str, range(1, 11)), f"open({last!r}, 'w').close(); 11"]
    values = [result.value for result in sandfork.map(codes, policy=policy, jobs=2)]
    assert sorted(values) == list(range(12))
    assert values[0] != 0


def test_each_task_has_its_own_sandbox() -> None:
    code = "import os, builtins; found = os.path.exists('mark'), hasattr(builtins, 'mark')\n"
    code += "open('mark', 'w').close(); builtins.mark = 1; any(found)"
    assert [result.value for result in sandfork.map([code] * 12)] == [False] * 12


def test_timeout_replaces_the_policys_limit() -> None:
    code = "import time; time.sleep({})"
    (long,) = sandfork.map([code.format(25)], timeout=1)
    assert long.status == "timeout"
    tasks = [Task(code.format(25), id="long", limits={"wall": "1s"}), Task(code.format(0), id="short")]
    results = {r.id: r for r in sandfork.map(tasks, timeout=60)}
    assert (results["long"].status, results["short"].status) == ("timeout", "ok")
    (number,) = sandfork.map([Task(code.format(25), limits={"wall": 0.5})])
    assert number.execution is not None
    assert number.execution.error is not None
    assert "its limit of 0.5 s on the clock" in number.execution.error.value
    # With a `timeout`, a task's limit may exceed the policy's too; without one, it is refused.
    policy = sandfork.Policy(limits={"wall": "100ms"})
    (result,) = sandfork.map([Task(code.format(0.3), limits={"wall": "50s"})], policy=policy, timeout=60)
    assert result.ok
    with pytest.raises(sandfork.RequestError, match=r"task 0: `limits.wall` is above the policy's 100ms"):
        next(sandfork.map([Task("1", limits={"wall": "2s"})], policy=policy))


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"cod": "1"}, "unknown key `cod`: did you mean `code`"),
        ({}, "there is nothing to run"),
        ({"code": "1", "program": ["sh"]}, "it has both `code` and `program`"),
        ({"code": "1", "file": "x.py"}, "it has both `code` and `file`"),
        ({"code": "1", "policy": "strict"}, "the tasks of a batch share one policy"),
        ({"code": "1", "limits": {"memory": "1MiB"}}, "`limits.memory` is part of the jail"),
        ({"code": "1", "limits": {"wall": "soon"}}, "`limits.wall`: "),
        (Task("1", files={"../x": "x"}), "`files`: "),
    ],
)
def test_invalid_task_is_reported_and_no_later_one_starts(
    task: object, said: str, tmp_path: pathlib.Path
) -> None:
    policy = sandfork.Policy(filesystem={"write": [tmp_path]})
    os.chmod(tmp_path, 0o777)
    mark = f"open({str(tmp_path)!r} + '/%d', 'a').write('x')"
    results = sandfork.map([mark % 0, task, *(mark % n for n in range(2, 9))], policy=policy)  # type: ignore[list-item]
    assert next(results).status == "ok"
    with pytest.raises(sandfork.RequestError, match=f"task 1: {said}"):
        next(results)
    assert os.listdir(tmp_path) == ["0"]


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ("nothing", sandfork.PolicyError),
        (sandfork.Policy(python={"interpreter": "/nothing/python"}), sandfork.InterpreterError),
    ],
)
def test_failed_start_raises(policy: sandfork.Policy | str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        next(sandfork.map(["1"], policy=policy))


@pytest.mark.parametrize("files", [{"a": "", "a/b": ""}, {str(n): "" for n in range(5000)}])
def test_conflicting_files_are_an_invalid_task(files: dict[str, str]) -> None:
    results = sandfork.map(["1", Task("1", files=files), "2"])
    assert next(results).value == 1
    with pytest.raises(sandfork.RequestError, match="task 1: `files`: "):
        next(results)


def test_integers_of_any_size_are_compared_exactly() -> None:
    factorial = math.factorial(40)
    tasks = [
        Task(f"import math\nmath.factorial(40){plus}", expect={"value": expected})
        for plus, expected in [("", factorial), ("+1", factorial), ("", float(factorial)), ("", -factorial)]
    ]
    right, *others = sandfork.map(tasks, ordered=True)
    assert right.verdict == "pass"
    assert [other.verdict for other in others] == ["wrong"] * 3
    assert others[0].mismatch == f"value: expected {factorial}, found {factorial + 1}"


def test_killed_zygote_loses_no_task_and_failures_run_once(tmp_path: pathlib.Path) -> None:
    os.chmod(tmp_path, 0o777)
    policy = sandfork.Policy(filesystem={"write": [tmp_path]})
    code = f"import time; open({str(tmp_path)!r} + '/%d', 'a').write('x'); time.sleep(0.02); 1 / 0"
    killed = 0
    results = []
    for result in sandfork.map((code % n for n in range(60)), policy=policy, jobs=2):
        results.append(result)
        if len(results) in (10, 30):
            for process in processes.descendants(supervisor()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.number, signal.SIGKILL)
                    killed += 1
    assert killed >= 4
    assert sorted(result.id for result in results) == list(range(60))
    # A guest that was killed before the end of its zygote was noticed has ended by a signal.
    assert {result.status for result in results} <= {"exception", "signal"}
    assert sum(result.status == "exception" for result in results) >= 50
    often = {n: (tmp_path / str(n)).stat().st_size for n in range(60) if (tmp_path / str(n)).exists()}
    # Only tasks that ran when their zygote was killed run twice.
    assert sum(times > 1 for times in often.values()) <= 4


def test_killed_supervisor_loses_no_task() -> None:
    numbers = []
    results = []
    for result in sandfork.map((f"import time; time.sleep(0.02); {n}" for n in range(40)), jobs=2):
        results.append(result)
        if len(results) == 10:
            numbers.append(supervisor())
            os.kill(supervisor(), signal.SIGKILL)
    assert sorted(result.value for result in results) == list(range(40))
    assert supervisor() not in numbers


@pytest.mark.parametrize("end", ["close", "forget", "error"])
def test_early_exit_leaves_nothing_running(end: str) -> None:
    sandfork.run("1")
    # The zygote of the batch is running.
    assert all(result.ok for result in sandfork.map(["1"] * 4))
    files = opened()
    taken: list[int] = []
    tasks = (taken.append(n) or ("1" if n == 0 else SLEEPS) for n in itertools.count())
    results = sandfork.map(tasks, jobs=2)
    assert next(results).ok
    assert len(taken) <= 1 + 2 * 4
    running = wait_for_sleepers(2)
    if end == "close":
        results.close()
    elif end == "error":
        threading.Timer(0.1, results.close).start()
        assert list(results) == []
    del results
    processes.assert_gone(running)
    assert not sleepers(processes.descendants(supervisor()))
    assert_closed_since(files)


def test_slow_consumer_holds_up_the_batch() -> None:
    taken: list[int] = []
    results = sandfork.map((taken.append(n) or str(n) for n in range(100)), jobs=2)
    first = next(results)
    time.sleep(0.3)
    assert len(taken) <= 1 + 2 * 4
    assert sorted(result.value for result in (first, *results)) == list(range(100))


def test_values_are_those_of_a_run() -> None:
    expected = {
        "None": None,
        "2**40": 2**40,
        "1.5": 1.5,
        "'é' * 40_000": "é" * 40_000,
        "(1, 2)": (1, 2),
        "{'a': [1, {2: b'x'}]}": {"a": [1, {2: b"x"}]},
        "{1, 2}": {1, 2},
        "list(range(100_000))": list(range(100_000)),
        "[{'n': n} for n in range(20_000)]": [{"n": n} for n in range(20_000)],
    }
    values = [result.value for result in sandfork.map(list(expected), ordered=True)]
    assert values == list(expected.values())
    large, unknown = (result.value for result in sandfork.map(["b'x' * (5 << 20)", "object()"], ordered=True))
    assert isinstance(large, sandfork.Opaque)
    assert large.repr == "<bytes, too large to transfer>"
    assert isinstance(unknown, sandfork.Opaque)


def test_outcomes_are_compared_with_expectations() -> None:
    tasks = [
        Task("print(sum(map(int, input().split())))", stdin="1 2", expect="3"),
        Task("print(0.1 + 0.2)", expect={"stdout": "0.3", "tolerance": 1e-9}),
        Task("print(1); print(2)", expect={"stdout": "1 2", "whitespace": "any"}),
        Task("{'a': (1, 2.0)}", expect={"value": {"a": [1, 2]}}),
        Task("print('no')", expect="yes"),
        Task("print('yes')\n1 / 0", expect="yes"),
        Task("print('yes')\nwhile True: pass", limits={"wall": "300ms"}, expect="yes"),
        Task("6 * 7"),
    ]
    results = list(sandfork.map(tasks, ordered=True))
    assert [result.verdict for result in results] == [*["pass"] * 4, "wrong", "failed", "failed", None]
    assert [result.mismatch for result in results if result.mismatch] == [
        'stdout, line 1: expected "yes", found "no"'
    ]
    compact = results[4].to_dict(compact=True)
    assert compact.pop("wall_ms") > 0
    said = {"verdict": "wrong", "mismatch": results[4].mismatch}
    assert compact == {"id": 4, "status": "ok", "exit_code": 0, "stdout": "no\n", **said}


def test_a_guest_that_forges_its_result_fails_its_own_case_only() -> None:
    forged = """
import json, os, struct
def send(header, payload=b""):
    data = json.dumps(header).encode()
    os.write(1023, struct.pack("<II", len(data), len(payload)) + data + payload)
claim = {"kind": "result", "id": 1, "status": "ok", "value": 42}
send({**claim, "verdict": "pass", "expect": None, "stdout": "42"})
os._exit(0)
"""
    # The expected value is nowhere in the guest: not in its files, its memory or its environment.
    seek = """
import gc, os, pathlib, sys
texts = [open("/proc/self/environ").read(), open("/proc/self/cmdline").read(), str(sys.argv)]
texts += [str(part) for part in gc.get_objects() if type(part) in (dict, list, tuple)]
print("".join(map(chr, (115, 101, 99, 114, 101, 116))) * 3 in " ".join(texts) or os.listdir("/work"))
"""
    tasks = [Task(forged, expect="42"), Task(seek, expect="secret" * 3), Task("print(42)", expect="42")]
    results = list(sandfork.map(tasks, ordered=True, jobs=1))
    assert [result.verdict for result in results] == ["wrong", "wrong", "pass"]
    assert results[1].stdout == "[]\n"


def test_invalid_expectation_names_its_task() -> None:
    with pytest.raises(sandfork.RequestError, match=r"task 0: unknown key `expect.stdot`: did you mean"):
        list(sandfork.map([Task("1", expect={"stdot": "1"})]))
    with pytest.raises(sandfork.RequestError, match="task 0: it cannot be written as JSON"):
        list(sandfork.map([Task("1", expect={"value": {1, 2}})]))


def test_much_output_arrives_whole() -> None:
    code = "import sys; sys.stdout.write('é' * 1_500_000); sys.stderr.write('x' * 1_000_000)"
    policy = sandfork.Policy(limits={"output": "8MiB"})
    (result,) = sandfork.map([code], policy=policy)
    assert (result.stdout, result.stderr) == ("é" * 1_500_000, "x" * 1_000_000)


def test_two_batches_and_a_session_run_concurrently() -> None:
    with sandfork.Sandbox() as sbx:
        one, two = sandfork.map(map(str, range(20))), sandfork.map(map(str, range(20)), policy="strict")
        for first, second in zip(one, two):
            assert sbx.run(f"{first.value} + {second.value}").value == first.value + second.value


def test_forked_process_does_not_take_part() -> None:
    results = sandfork.map(map(str, range(20)), jobs=2, ordered=True)
    assert next(results).value == 0
    child = os.fork()
    if child == 0:
        try:
            next(results)
        except sandfork.SessionForked as error:
            own = [result.value for result in sandfork.map(["6 * 7"])]
            os._exit(0 if "this batch belongs to" in str(error) and own == [42] else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert [result.value for result in results] == list(range(1, 20))


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_everything_ends_with_the_host(end: str) -> None:
    code = f"""
results = sandfork.map(["1"] + [{FOREVER!r}] * 50, jobs=2)
next(results)
print(sandfork._supervisor._shared.process.pid, flush=True)
sys.stdin.readline()
"""
    with script(code, stdin=subprocess.PIPE) as host:
        assert host.stdout is not None
        number = int(host.stdout.readline())
        family = {processes.of(number)}
        deadline = time.monotonic() + 60
        # Wait until both guests run.
        while len(family) < 5 and time.monotonic() < deadline:
            family = processes.descendants(number) | {processes.of(number)}
        assert len(family) >= 5
        if end == "exit":
            host.communicate("\n", timeout=60)
            assert host.returncode == 0
        else:
            host.kill()
    processes.assert_gone(family)


async def test_asyncio_version_works() -> None:
    async def tasks(count: int) -> object:
        for n in range(count):
            await asyncio.sleep(0.001)
            yield f"{n} ** 2"

    values = [result.value async for result in sandfork.async_map(tasks(10), ordered=True)]  # type: ignore[arg-type]
    assert values == [n**2 for n in range(10)]
    four = [sandfork.async_map([f"{n}", SLEEPS], jobs=1) for n in range(4)]
    first = await asyncio.gather(*(results.__anext__() for results in four))
    assert [result.value for result in first] == [0, 1, 2, 3]
    running = wait_for_sleepers(4)
    for results in four:
        await results.aclose()
    processes.assert_gone(running)

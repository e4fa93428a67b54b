"""Many sessions of many threads at once, with a mix of all endings."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest

import sandfork
from sandfork import Sandbox, Tool, _supervisor

from ..support import processes
from ..support.descriptors import assert_closed_since, opened

# The number of threads, and of sessions for each. `SANDFORK_STRESS`, if not empty, makes ten times as many
# sessions.
THREADS, SESSIONS = (20, 10) if os.environ.get("SANDFORK_STRESS") else (10, 2)
# The number of cells of each session.
CELLS = 50

ENDINGS = {
    "value": ("token * 2", "ok"),
    "print": ("print(token)", "ok"),
    "tool": ("echo(token)", "ok"),
    "raise": ("raise ValueError(token)", "exception"),
    "exit": ("import sys; sys.exit(3)", "exit"),
    "large": ("str(token) * 100_000", "ok"),
    "loop": ("while True: pass", "timeout"),
    "crash": ("import os; os.kill(os.getpid(), 11)", "signal"),
    "leave": ("import os; os._exit(4)", "exit"),
    "flood": ("print('x' * 5_000_000)", "output-limit"),
}
# Endings that cost a worker or a wait are rarer.
WEIGHTS = [30, 20, 20, 10, 5, 5, 1, 1, 1, 1]


def check(sbx: Sandbox, token: int, kind: str) -> None:
    """Runs one cell and checks that the answer belongs to it."""
    code, status = ENDINGS[kind]
    timeout = 0.2 if kind == "loop" else 60
    execution = sbx.run(code, variables={"token": token}, timeout=timeout)
    assert execution.status == status, (kind, execution)
    if kind in ("value", "tool"):
        assert execution.value == (token * 2 if kind == "value" else token)
    elif kind == "print":
        assert "".join(execution.logs.stdout) == f"{token}\n"
    elif kind == "raise":
        assert execution.error is not None
        assert execution.error.value == str(token)
    elif kind == "large":
        assert execution.value == str(token) * 100_000


def work(number: int, problems: list[BaseException]) -> None:
    chance = random.Random(number)
    try:
        tools = [Tool("echo", lambda x: x)]
        sessions = [Sandbox(tools=tools, on_death="restart") for _ in range(SESSIONS)]
        for cell in range(CELLS * SESSIONS):
            (kind,) = chance.choices(list(ENDINGS), WEIGHTS)
            check(chance.choice(sessions), number * 1_000_000 + cell, kind)
        for sbx in sessions:
            sbx.close()
    except BaseException as error:
        problems.append(error)


@pytest.mark.stress
def test_every_reply_matches_its_request_and_nothing_leaks() -> None:
    sandfork.run("1")
    assert _supervisor._shared is not None
    supervisor = _supervisor._shared.process.pid
    before = opened()
    # Processes for the policies of earlier tests, including prepared workers.
    started = processes.descendants(supervisor)
    problems: list[BaseException] = []
    threads = [threading.Thread(target=work, args=(number, problems)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert_closed_since(before)
    assert sandfork.run("6 * 7").value == 42
    # The zygote, its init and the permanent processes, but no worker of a session, once those have ended.
    until = time.monotonic() + 60
    while len(left := processes.descendants(supervisor)) >= len(started) + 10:
        assert time.monotonic() < until, left
        time.sleep(0.05)

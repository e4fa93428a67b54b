"""A managed agent and a tool hold a secret. No process or file of a sandbox contains it."""

from __future__ import annotations

import multiprocessing
import os
import re
import secrets
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from smolagents import Tool

from .support import Script, code_agent


def sandboxed() -> list[int]:
    """The processes below the supervisor: zygotes, workers and their children."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(") ")[2].split()[1])
    supervisors = [child for child, parent in parents.items() if parent == os.getpid()]
    found = [child for child, parent in parents.items() if parent in supervisors]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def memory(pid: int) -> Iterator[bytes]:
    """The readable memory of a process, mapping by mapping."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for start, end in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) r", maps, re.MULTILINE):
            place, size = int(start, 16), int(end, 16) - int(start, 16)
            try:
                file.seek(place)
                yield file.read(size)
            except (OSError, OverflowError, ValueError):
                # The kernel's own pages ([vvar], [vsyscall]).
                continue


def files(pid: int) -> Iterator[bytes]:
    """The contents of a process's own directories, if it has any."""
    if os.path.samefile(f"/proc/{pid}/root", "/"):
        return
    for own in ("work", "tmp", "dev/shm"):
        for path in Path(f"/proc/{pid}/root/{own}").rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield path.read_bytes()


def holders(needle: bytes) -> set[str]:
    """The places of the needle in all processes of a sandbox."""
    found = set()
    pids = sandboxed()
    assert pids
    for pid in pids:
        try:
            if any(needle in block for block in memory(pid)):
                found.add("memory")
            for part in ("environ", "cmdline"):
                if needle in Path(f"/proc/{pid}/{part}").read_bytes():
                    found.add(part)
            if any(needle in content for content in files(pid)):
                found.add("files")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


class Bank(Tool):
    name = "balance"
    description = "What is in an account."
    inputs = {"account": {"type": "string", "description": "Which."}}
    output_type = "integer"

    def __init__(self, key: str, look: Any) -> None:
        super().__init__()
        self.key = key
        self.look = look

    def forward(self, account: str) -> int:
        assert len(self.key) == 43
        self.look()
        return 40 if account == "savings" else 2


# Only root can trace the processes of a sandbox.
UNREADABLE = {"unreadable"}


class Teller(Script):
    api_key = ""


def held_while_solving(secret: str, shown: str) -> list[tuple[set[str], set[str]]]:
    """Solves a task with two agents that hold the secret. Returns its holders and the output, three times."""
    seen: list[tuple[set[str], set[str]]] = []

    def look() -> None:
        try:
            seen.append((holders(secret.encode()), holders(shown.encode())))
        except PermissionError:
            seen.append((UNREADABLE, UNREADABLE))

    clerk = code_agent(
        "final_answer(balance('savings'))",
        tools=[Bank(secret, look)],
        name="clerk",
        description="Knows about savings.",
    )
    clerk.model = Teller(*clerk.model.codes)
    clerk.model.api_key = secret
    task = (
        "open('note.txt', 'w').write(marker)\n"
        "sentence = clerk('How much?')\n"
        "saved = int(sentence.split()[-1])\n"
        "final_answer(saved + balance('current'))"
    )
    with clerk, code_agent(task, tools=[Bank(secret, look)], managed_agents=[clerk]) as agent:
        assert agent.run("How much do I have?", additional_args={"marker": shown}) == 42
        look()
    return seen


def test_host_secret_is_not_visible_in_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    # Generated here, so that no file contains it. The environment contains it from the start.
    secret, shown = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    monkeypatch.setenv("BANK_KEY", secret)
    # A separate process, so that all sandboxes below it belong to this task.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        seen = pool.submit(held_while_solving, secret, shown).result()
    if seen[0][0] == UNREADABLE and os.geteuid() != 0:
        pytest.skip("an ordinary user may not read the memory of sandboxed processes")
    assert [held for held, _ in seen] == [set(), set(), set()]
    # The same search finds a value that the code was given, in its memory and in its file.
    assert [held for _, held in seen] == [{"memory", "files"}] * 3

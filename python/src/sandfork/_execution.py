"""The end of a cell, in the shape of E2B's `Execution`, with what the supervisor saw."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from . import _endings, _html, _reports, _values
from ._reports import Denial, Enforced, Limit, PolicyIdentity, Usage
from ._result import Result


class Logs(NamedTuple):
    """What a cell wrote, in the pieces in which it came."""

    stdout: list[str]
    stderr: list[str]


class ExecutionError(NamedTuple):
    """Why a cell did not come to its end.

    An uncaught exception of the guest has its class's name, its message as `value`, and the traceback
    of the guest's own frames. Where the supervisor ended the cell, `name` says by what (`Timeout`,
    `MemoryLimit`, `Signal`, ...), `value` in a sentence, and the traceback, if there is one, where the
    guest stood.
    """

    name: str
    value: str
    traceback: str


_UNDECODED: Any = object()


class Execution:
    """How a cell ended: what it shows, printed and raised, and what the supervisor saw of it.

    `status` is `ok`, `exception`, `exit`, `timeout`, `cpu-limit`, `memory-limit`, `pids-limit`,
    `output-limit`, `file-limit`, `denied`, `signal`, `protocol-violation` or `interrupted`. What the
    guest says (`results`, `value`, `logs`, `error`) decides nothing of `status`, `limit`, `usage` and
    `enforced`, which come from the supervisor and the kernel.
    """

    # Most cells are small and most of this is never asked for: it is made when it is.
    __slots__ = (
        "_buffers",
        "_header",
        "_info",
        "_outcome",
        "_results",
        "_shown",
        "_value",
        "_wall",
        "logs",
        "restarted",
    )

    def __init__(
        self,
        header: Mapping[str, Any],
        logs: Logs,
        shown: list[Result],
        *,
        buffers: Sequence[memoryview] = (),
        limits: Mapping[str, float | str] = {},
        wall: float | None = None,
        restarted: bool = False,
    ) -> None:
        self._header = header
        self._outcome: Mapping[str, Any] = header["outcome"]
        self._buffers = buffers
        self._info = limits
        self._wall = wall
        self._shown = shown
        self._results: list[Result] | None = None
        self._value = _UNDECODED
        self.logs = logs
        """What it wrote to stdout and stderr."""
        self.restarted = restarted
        """Whether it ran in a fresh session, because the one before had ended."""

    @property
    def status(self) -> str:
        """How it ended, in one word."""
        status: str = self._outcome["status"]
        return status

    @property
    def ok(self) -> bool:
        """Whether it ran to its end, or exited with 0."""
        return self.status == "ok" or (self.status == "exit" and self.exit_code == 0)

    @property
    def exit_code(self) -> int:
        """What the `sandfork` command would exit with."""
        return int(self._outcome.get("exit_code", 0))

    @property
    def value(self) -> Any:
        """Value of the last expression; `None` too where there is none.

        What could not cross is an `Opaque`, alone or inside of what could.
        """
        if self._value is _UNDECODED:
            try:
                self._value = _values.decode(self._header.get("value"), self._buffers)
            except ValueError as error:
                # The guest wrote it: a lie harms nobody but its teller.
                self._value = _values.Opaque("malformed", f"<malformed value: {error}>")
            self._buffers = ()
        return self._value

    @property
    def results(self) -> list[Result]:
        """What it shows, in order; the value of its last expression is the one with `is_main_result`."""
        if self._results is None:
            results = list(self._shown)
            if self.value is not None and not any(shown.is_main_result for shown in results):
                text = _values.safe_repr(self.value)
                results.append(Result({"text/plain": text}, is_main_result=True))
            self._results = results
        return self._results

    @property
    def text(self) -> str | None:
        """The value of the last expression as text."""
        return next((shown.text for shown in self.results if shown.is_main_result), None)

    @property
    def error(self) -> ExecutionError | None:
        """Why it did not come to its end; `None` exactly where `ok`."""
        if self.ok:
            return None
        told = self._outcome.get("error") or {}
        trace = str(told.get("traceback", ""))
        if self.status == "exit":
            return ExecutionError("SystemExit", str(self.exit_code), trace)
        if self.status in ("exception", "protocol-violation") and told:
            return ExecutionError(str(told.get("name", "")), str(told.get("message", "")), trace)
        said = _endings.sentence(self._outcome, self._info, self._wall)
        return ExecutionError(_endings.class_name(self.status), said, trace)

    @property
    def execution_count(self) -> int:
        """How many cells the session has run, this one included."""
        return int(self._header.get("execution_count", 0))

    @property
    def limit(self) -> Limit | None:
        """The limit that ended it."""
        return _reports.limit(self._outcome.get("limit"))

    @property
    def usage(self) -> Usage:
        """What it used."""
        return _reports.usage(self._outcome.get("usage", {}))

    @property
    def enforced(self) -> Enforced:
        """What held it, as it was seen before the code ran."""
        return _reports.enforced(self._outcome.get("enforced", {}))

    @property
    def denied(self) -> tuple[Denial, ...]:
        """Operations that were refused, as far as they could be seen."""
        return _reports.denials(self._outcome.get("denied", ()))

    @property
    def policy(self) -> PolicyIdentity:
        """Under which policy it ran."""
        return _reports.identity(self._outcome.get("policy", {}))

    @property
    def session(self) -> str:
        """`live`, or `ended` where the session's worker is gone, with variables, imports and files."""
        session: str = self._header["session"]
        return session

    @property
    def final(self) -> bool:
        """Whether a tool with `ends_cell` ended it; `value` is then what the tool returned."""
        return self._header.get("final") is True

    def to_json(self) -> str:
        """What it shows, printed and raised, and how it ended, as JSON text."""
        error = self.error
        results = [{name: result[name] for name in result.formats()} for result in self.results]
        told = {
            "results": results,
            "logs": self.logs._asdict(),
            "error": None if error is None else error._asdict(),
            "execution_count": self.execution_count,
            "status": self.status,
            "exit_code": self.exit_code,
            "limit": self._outcome.get("limit"),
            "usage": asdict(self.usage),
            "enforced": asdict(self.enforced),
            "denied": [asdict(denial) for denial in self.denied],
            "policy": asdict(self.policy),
            "session": self.session,
        }
        return json.dumps(told, default=repr)

    def __reduce__(self) -> tuple[Any, ...]:
        # Decoded first: buffers are mapped files, which belong to this process.
        state = {name: getattr(self, name) for name in self.__slots__}
        return _restored, ({**state, "_value": self.value, "_buffers": ()},)

    def __repr__(self) -> str:
        parts = [self.status]
        for name, said in (("text", self.text), *zip(Logs._fields, map("".join, self.logs))):
            if said:
                parts.append(f"{name}={_short(said)}")
        error = self.error
        if error is not None:
            parts.append(f"error={_short(f'{error.name}: {error.value}')}")
        return f"<Execution {' '.join(parts)}>"

    def _repr_html_(self) -> str:
        return _html.execution(self)


def _restored(state: Mapping[str, Any]) -> Execution:
    """An execution that was pickled or copied."""
    execution = Execution.__new__(Execution)
    for name, value in state.items():
        setattr(execution, name, value)
    return execution


def _short(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:100] + "...")

"""The result of a cell, with the attributes of E2B's `Execution` and the supervisor's measurements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from . import _endings, _html, _reports, _text, _values
from ._reports import Connection, Denial, Enforced, Limit, PolicyIdentity, SessionInfo, Usage
from ._result import Result


class Logs(NamedTuple):
    """The output of a cell, in the pieces in which it arrived."""

    stdout: list[str]
    stderr: list[str]


class ExecutionError(NamedTuple):
    """The reason why a cell did not complete.

    For an uncaught exception of the guest, `name` is the class's name, `value` the message, and
    `traceback` the traceback of the guest's own frames. If the supervisor ended the cell, `name` is the
    cause (`Timeout`, `MemoryLimit`, `Signal`, ...), `value` describes it in a sentence, and `traceback`
    shows where the guest was, or is empty.
    """

    name: str
    value: str
    traceback: str


_UNDECODED: Any = object()


class Execution:
    """The result of a cell: its values, output and exception, and the supervisor's measurements.

    `status` is `ok`, `exception`, `exit`, `timeout`, `cpu-limit`, `memory-limit`, `pids-limit`,
    `output-limit`, `file-limit`, `denied`, `signal`, `protocol-violation` or `interrupted`. `results`,
    `value`, `logs` and `error` come from the guest. `status`, `limit`, `usage` and `enforced` come from
    the supervisor and the kernel. Some limits, such as that on open files, are measured by neither: a guest
    can fail as if it had reached one, and `denied` then lists the limit as reported by the guest.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        logs: Logs,
        shown: list[Result],
        info: SessionInfo,
        *,
        buffers: Sequence[memoryview] = (),
        wall: float | None = None,
        restarted: bool = False,
    ) -> None:
        # Most cells are small and most attributes are never read, so they are computed on access.
        self._header = header
        self._outcome: Mapping[str, Any] = header["outcome"]
        self._buffers = buffers
        self._info = info
        self._wall = wall
        self._shown = shown
        self._results: list[Result] | None = None
        self._value = _UNDECODED
        self.summary: str | None = None
        """A replacement for the value's `repr()` if that would take too much time or memory; set when `value`
        is first read."""
        self.logs = logs
        """The cell's stdout and stderr."""
        self.restarted = restarted
        """Whether the cell ran in a fresh session because the previous one had ended."""

    @property
    def status(self) -> str:
        """How the cell ended; the class lists the values."""
        return str(self._outcome["status"])

    @property
    def ok(self) -> bool:
        """Whether the cell completed, or exited with 0."""
        return self.status == "ok" or (self.status == "exit" and self.exit_code == 0)

    @property
    def exit_code(self) -> int:
        """The exit code that the `sandfork` command would return."""
        return int(self._outcome.get("exit_code", 0))

    @property
    def value(self) -> Any:
        """The value of the last expression; `None` if there is none.

        A value that could not be transferred is an `Opaque`, even inside a container.
        """
        if self._value is _UNDECODED:
            decoder = _values.Decoder(self._buffers)
            try:
                self._value = decoder.decode(self._header.get("value"))
                self.summary = _text.summary(decoder, self._value, self._buffers)
            except ValueError as error:
                # The guest sent the value: a malformed one affects only its own result.
                self._value = _values.Opaque("malformed", f"<malformed value: {error}>")
            self._buffers = ()
        return self._value

    @property
    def results(self) -> list[Result]:
        """The displays of the cell, in order. `is_main_result` marks the value of the last expression, which
        a final `;` suppresses."""
        if self._results is None:
            results = list(self._shown)
            is_shown = any(shown.is_main_result for shown in results) or self._header.get("quiet") is True
            if not is_shown and self.value is not None:
                text = _values.safe_repr(self.value) if self.summary is None else self.summary
                results.append(Result({"text/plain": text}, is_main_result=True))
            self._results = results
        return self._results

    @property
    def text(self) -> str | None:
        """The value of the last expression as text, unless a final `;` suppresses it."""
        return next((shown.text for shown in self.results if shown.is_main_result), None)

    @property
    def error(self) -> ExecutionError | None:
        """The reason why the cell did not complete; `None` if and only if `ok`."""
        if self.ok:
            return None
        reported = self._outcome.get("error") or {}
        trace = str(reported.get("traceback", ""))
        if self.status == "exit":
            return ExecutionError("SystemExit", str(self.exit_code), trace)
        if self.status in ("exception", "protocol-violation") and reported:
            return ExecutionError(str(reported.get("name", "")), str(reported.get("message", "")), trace)
        own = {"limits.wall": self._wall, "limits.cpu": self._header.get("cpu_limit")}
        limits = {**self._info.limits, **{key: amount for key, amount in own.items() if amount is not None}}
        message = _endings.sentence(self._outcome, limits, self.session)
        return ExecutionError(_endings.class_name(self.status), message, trace)

    @property
    def execution_count(self) -> int:
        """The number of cells that the session has run, including this one."""
        return int(self._header.get("execution_count", 0))

    @property
    def limit(self) -> Limit | None:
        """The limit that ended the cell, or `None`."""
        return _reports.limit(self._outcome.get("limit"))

    @property
    def usage(self) -> Usage:
        """The resources that the cell used."""
        return _reports.usage(self._outcome.get("usage", {}))

    @property
    def enforced(self) -> Enforced:
        """The layers that were verified before the code ran."""
        return self._info.enforced

    @property
    def denied(self) -> tuple[Denial, ...]:
        """Refused operations, as far as they could be observed, at most 64: first those that the exception
        reports, then the limit that was reached, then those that the kernel counted, and refused
        connections."""
        return _reports.denials(self._outcome.get("denied", ()))

    @property
    def denied_omitted(self) -> int:
        """The number of refusals that `denied` leaves out."""
        return int(self._outcome.get("denied_omitted", 0))

    @property
    def network(self) -> tuple[Connection, ...]:
        """Connections to other hosts, including refused ones. The list is truncated if it is very long;
        `usage.connections` counts all."""
        return _reports.connections(self._outcome.get("network", ()))

    @property
    def policy(self) -> PolicyIdentity:
        """The policy under which the cell ran."""
        return self._info.policy

    @property
    def session(self) -> str:
        """`live`, or `ended` if the session's worker is gone, with its variables, imports and files."""
        return str(self._header["session"])

    @property
    def final(self) -> bool:
        """Whether a tool with `ends_cell` ended the cell. `value` is then the tool's return value."""
        return self._header.get("final") is True

    def to_text(self, max_length: int = 20_000) -> str:
        """Formats the cell for a model: its output, then its value or error, and whether its session ended.
        The text has at most `max_length` characters: a longer one loses its middle, the output first."""
        return _text.described(self, max_length)

    def to_dict(self, *, compact: bool = False) -> dict[str, Any]:
        """Returns the values, output, exception and outcome of the cell as data that JSON can represent.

        With `compact`, returns only the status, exit code, limit, output, value, error and wall time, without
        empty fields. Values that JSON cannot represent are then their `repr()`.
        """
        if compact:
            return _text.compact(self)
        # `to_json` handles values that a guest has crafted.
        document: dict[str, Any] = json.loads(self.to_json())
        return document

    def to_json(self) -> str:
        """Returns the values, output, exception and outcome of the cell as JSON text."""
        error = self.error
        results = [{name: result[name] for name in result.formats()} for result in self.results]
        document = {
            "value": _text.plain_value(self),
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
            "denied_omitted": self.denied_omitted,
            "network": [asdict(connection) for connection in self.network],
            "policy": asdict(self.policy),
            "session": self.session,
        }
        try:
            return json.dumps(document, default=repr, allow_nan=False)
        except (RecursionError, ValueError):
            # The guest's JSON is nested too deeply to be serialized again, or has numbers that JSON does not
            # allow. Its source text is used instead.
            document["results"] = [{name: result._plain(name) for name in result} for result in self.results]
            return json.dumps(document, default=repr)

    def __getstate__(self) -> dict[str, Any]:
        # Decoding the value first releases its buffers, which are mapped files of this process.
        return {"_value": self.value, **vars(self)}

    def __repr__(self) -> str:
        parts = [self.status]
        for name, message in (("text", self.text), *zip(Logs._fields, map("".join, self.logs))):
            if message:
                parts.append(f"{name}={_short(message)}")
        error = self.error
        if error is not None:
            parts.append(f"error={_short(f'{error.name}: {error.value}')}")
        return f"<Execution {' '.join(parts)}>"

    def _repr_html_(self) -> str:
        return _html.execution(self)


def _short(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:100] + "...")

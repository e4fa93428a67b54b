"""The tasks of `map`, their encoding, and their results."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Union

from ._exceptions import RequestError, SandforkError, ValueTooLarge
from ._execution import Execution
from ._frames import MAX_PAYLOAD, encode, json_text
from ._options import checked_argv, read_source


@dataclass(frozen=True)
class Task:
    """One program of `map`, with the keys of a line of `sandfork map` (`docs/batch.md` in the
    repository). Exactly one of `code`, `file` and `program` is required."""

    code: str | None = None
    """Python source."""
    id: Any = None
    """Identifies the result, of any type. The default is the task's number in the iterable, from 0."""
    file: str | os.PathLike[str] | None = None
    """A script on the host, which this process reads."""
    program: Sequence[str] | None = None
    """A program in the sandbox, and its arguments."""
    args: Iterable[str] = ()
    """`sys.argv[1:]` of `code` and `file`."""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """The initial files of the work directory, by path; text is encoded as UTF-8."""
    stdin: str | bytes | None = None
    """The task's standard input."""
    limits: Mapping[str, str | float] = field(default_factory=dict)
    """`wall`, `cpu` and `output`, at most the policy's: in its notation (`"2s"`, `"64KiB"`), or as a number
    of seconds or of bytes."""
    expect: str | Mapping[str, Any] | None = None
    """The expected standard output, or a dict of `stdout`, `value`, `whitespace` and `tolerance`. The
    supervisor makes the comparison, and the guest never receives the expectation. `TaskResult.verdict` is the
    result."""


INFRASTRUCTURE = "infrastructure"
REFUSED = "refused"

TaskLike = Union[str, Mapping[str, Any], Task]


class Sent(NamedTuple):
    """A task that was sent and has no result yet."""

    id: Any
    """The task's `id`, or its number."""
    frame: bytes
    """The encoded task, which is sent again if the supervisor dies."""
    limits: Mapping[str, str | float]
    """The task's own limits."""


def checked_tasks(tasks: object) -> Iterator[TaskLike]:
    """Returns an iterator over tasks. A single task is rejected: a string would be one task per character."""
    if isinstance(tasks, (str, bytes, Mapping, Task)) or not isinstance(tasks, Iterable):
        raise RequestError(f"tasks is of type {type(tasks).__name__}: give an iterable of them")
    return iter(tasks)


def prepared(task: object, index: int) -> Sent:
    """Encodes a task. Raises `RequestError` if the task is invalid."""
    fields = _fields(task, index)
    name = fields.pop("id", None)
    if name is None:
        name = index
    try:
        return _sent(fields, name, index)
    except RequestError as error:
        raise type(error)(f"{described(name, index)}: {error}") from error.__cause__


def described(name: object, index: int) -> str:
    """Returns the name of a task for an error message."""
    if type(name) is int and name == index:
        return f"task {index}"
    text = repr(name)
    return f"task {text if len(text) <= 80 else text[:77] + '...'} (number {index}, from 0)"


def _fields(task: object, index: int) -> dict[str, Any]:
    if isinstance(task, str):
        return {"code": task}
    if isinstance(task, Task):
        given: Mapping[Any, Any] = vars(task)
    elif isinstance(task, Mapping):
        given = task
    else:
        kind = type(task).__name__
        raise RequestError(f"task {index} is of type {kind}: give code, a Task, or a dict with its keys")
    return {str(key): value for key, value in given.items() if value is not None}


def _sent(fields: dict[str, Any], name: Any, index: int) -> Sent:
    header: dict[str, Any] = {"kind": "task", "id": index}
    if "file" in fields and "code" not in fields and "program" not in fields:
        header["filename"], fields["code"] = _script(fields.pop("file"))
    elif "file" in fields:
        fields["file"] = os.fspath(fields["file"])
    for key in ("args", "program"):
        if key in fields:
            fields[key] = checked_argv(fields[key], key)
    if not fields.get("args"):
        # A program's arguments are part of `program`, so empty `args` are dropped.
        fields.pop("args", None)
    if "stdin" in fields:
        fields["stdin"] = _bytes("stdin", fields["stdin"])
    if isinstance(fields.get("files"), Mapping):
        files = fields["files"].items()
        fields["files"] = {_path(path): _bytes(f"files.{path}", contents) for path, contents in files}
    limits = dict(fields["limits"]) if isinstance(fields.get("limits"), Mapping) else {}
    try:
        line = json_text({**fields, "id": index}).encode()
    except UnicodeEncodeError:
        raise RequestError("it has a text with a lone surrogate, which cannot be sent") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"it cannot be written as JSON: {error}") from None
    _check_keys(fields.get("expect"))
    if len(line) > MAX_PAYLOAD:
        raise ValueTooLarge(
            f"it takes {len(line)} bytes, more than the {MAX_PAYLOAD} of a message: keep data out of it, in "
            "a directory that the policy shows (filesystem.read)"
        )
    return Sent(name, encode(header, line), {f"limits.{key}": limit for key, limit in limits.items()})


def _check_keys(expected: Any) -> None:
    """Raises `RequestError` for keys that are not strings. JSON would convert numbers, booleans and `None` to
    strings."""
    parts = [expected]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            for key in part:
                if not isinstance(key, str):
                    raise RequestError(
                        f"expect has the key {key!r}, and only dicts whose keys are texts can be expected: "
                        "compare others in the code"
                    )
            parts.extend(part.values())
        elif isinstance(part, (list, tuple)):
            parts.extend(part)


def _script(path: Any) -> tuple[str, str]:
    try:
        return os.fspath(path), read_source(path)
    except (OSError, SyntaxError, UnicodeDecodeError, TypeError) as error:
        raise RequestError(f"its file cannot be read: {error}") from error


def _path(path: Any) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise RequestError(f"files has a key of type {type(path).__name__}: give paths")
    return os.fspath(path)


def _bytes(key: str, value: Any) -> Any:
    """Bytes in the form of a task line: text, or base64."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, (str, Mapping)):
        return value
    raise RequestError(f"{key} is of type {type(value).__name__}: give text or bytes")


@dataclass(frozen=True)
class TaskResult:
    """The result of one task: an `execution`, or the `failure` for which it has none."""

    id: Any
    """The task's `id`, or its number in the iterable."""
    index: int
    """The task's number in the iterable, from 0."""
    attempts: int
    """The number of attempts. A task is retried only if it got no sandbox."""
    execution: Execution | None
    """How the task ended; `None` if it was not run."""
    failure: SandforkError | None
    """The reason why the task was not run: a `RequestError` if no sandbox can execute it, or the reason why
    it got no sandbox. `None` if it has an execution."""
    verdict: str | None = None
    """The result of the comparison with the task's `expect`: `pass`, `wrong`, or `failed` if the program
    neither ran to its end nor exited with 0. `None` if the task has no `expect` or got no sandbox."""
    mismatch: str | None = None
    """The first difference, if the verdict is `wrong`. It quotes the expected result."""

    @property
    def status(self) -> str:
        """The status of the execution; `infrastructure` if the task got no sandbox; `refused` if no sandbox
        can execute it."""
        if self.execution is None:
            return REFUSED if isinstance(self.failure, RequestError) else INFRASTRUCTURE
        return self.execution.status

    @property
    def ok(self) -> bool:
        """Whether the task completed, or exited with 0."""
        return self.execution is not None and self.execution.ok

    @property
    def value(self) -> Any:
        """The value of the program's last expression; `None` if there is none. A value with more than 4 MiB
        of long texts, bytes and arrays is an `Opaque`."""
        return None if self.execution is None else self.execution.value

    @property
    def stdout(self) -> str:
        """The task's standard output."""
        return "" if self.execution is None else "".join(self.execution.logs.stdout)

    @property
    def stderr(self) -> str:
        """The task's standard error."""
        return "" if self.execution is None else "".join(self.execution.logs.stderr)

    def to_dict(self, *, compact: bool = False) -> dict[str, Any]:
        """Returns the result as data that JSON can represent, if JSON can represent the `id`. With `compact`,
        it has the keys of `sandfork map --compact`."""
        document: dict[str, Any] = {"id": self.id}
        if self.attempts > 1:
            document["attempts"] = self.attempts
        if self.execution is None:
            error = {"name": type(self.failure).__name__, "message": str(self.failure)}
            return {**document, "status": self.status, "error": error}
        document.update(self.execution.to_dict(compact=compact))
        if self.verdict is not None:
            document["verdict"] = self.verdict
        if self.mismatch is not None:
            document["mismatch"] = self.mismatch
        return document

    def __repr__(self) -> str:
        what = self.failure if self.execution is None else self.execution
        return f"<TaskResult {self.id!r} {self.status}: {what!r}>"


@dataclass(frozen=True)
class Progress:
    """The progress of a batch."""

    done: int
    """The number of tasks with a result."""
    failed: int
    """The number of tasks that ran and are not `ok`, or were refused."""
    lost: int
    """The number of tasks that got no sandbox."""
    total: int | None
    """The number of tasks, or `None` if the iterable has no `len()`."""
    elapsed: float
    """Seconds since the first result was requested."""

    @property
    def rate(self) -> float:
        """Results per second."""
        return self.done / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def remaining(self) -> float | None:
        """Estimated seconds until the last result, at the current rate; `None` if unknown."""
        if self.total is None or not self.done:
            return None
        return max(0, self.total - self.done) / self.rate if self.rate else None

"""A batch, as a conversation with the supervisor. This module does no I/O; see `_conversation`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Callable

from . import _events, _reports
from ._blobs import unpack
from ._conversation import Actions, Conversation, Notify, Receive, Send, unexpected
from ._exceptions import ProtocolError, RequestError, SupervisorDied, refused
from ._execution import Execution
from ._frames import Frame, encode
from ._options import checked_function
from ._output import Output
from ._tasks import INFRASTRUCTURE, Progress, Sent, TaskResult, described, prepared

OnProgress = Callable[[Progress], Any]

# `PENDING`: no task is available yet. `END`: there are no more tasks.
PENDING: Any = object()
END: Any = object()

# The batch fails when so many supervisors in a row die without a result.
_MAX_DEATHS = 3


class Source:
    """Takes tasks from an iterator."""

    pending: Any = None
    """A future of the event loop that is done when a task can be taken; `None` if `take` blocks."""

    def __init__(self, tasks: Iterator[Any]) -> None:
        self._tasks = tasks

    def take(self) -> Any:
        """Returns the next task, `PENDING` or `END`. Propagates exceptions of the iterator."""
        return next(self._tasks, END)

    async def cancel(self) -> None:
        """Stops waiting for a task."""


class Batch(Conversation):
    """The state of a batch, and the conversation that produces its next result.

    A task is kept until its result arrives. If the supervisor dies, the kept tasks are sent to a new one,
    because their progress is unknown. The host may have fewer free resources by then, so that the new
    supervisor accepts fewer tasks at once.
    """

    noun = "batch"

    def __init__(
        self, opening: Mapping[str, Any], source: Source, total: int | None, on_progress: OnProgress | None
    ) -> None:
        super().__init__(opening)
        self.source = source
        self._on_progress = checked_function(on_progress, "on_progress")
        self._total = total
        self._in_flight: dict[int, Sent] = {}
        # Tasks of a supervisor that died which were not resent yet. In task order, they follow `_in_flight`.
        self._to_resend: dict[int, Sent] = {}
        self._window, self._jobs = 0, 0
        self._taken = 0
        # Whether no further task is taken, and the exception to raise once the taken tasks have results.
        self._ended = False
        self._failure: Exception | None = None
        # Whether `end` was sent to the current supervisor.
        self._end_sent = False
        self._output = Output()
        self._deaths = 0
        self._done, self._failed, self._lost = 0, 0, 0
        self._begun = 0.0

    def next(self) -> Actions[TaskResult | None]:
        """Returns the next result, or `None` when there are no more."""
        self._begun = self._begun or time.monotonic()
        connected = self.decoder is not None
        while True:
            try:
                if not connected:
                    yield from self._open()
                    connected = True
                yield from self._fill()
                may_take = not self._ended and len(self._in_flight) < self._window
                frame: Frame | None = yield Receive(wake=self.source.pending if may_take else None)
            except SupervisorDied as error:
                self._count_death(error)
                connected = False
                continue
            if frame is None:
                continue
            if frame.header["kind"] == "closed":
                self._check_end()
                return None
            result = yield from self._handle(frame)
            if result is not None:
                yield from self._notify(result)
                return result

    def settle(self) -> Actions[bool]:
        """After an exception of the caller: a batch does not continue."""
        return False
        yield

    # Parts of `next`.

    def _count_death(self, error: SupervisorDied) -> None:
        self._deaths += 1
        if self._deaths == _MAX_DEATHS:
            raise SupervisorDied(
                f"{_MAX_DEATHS} supervisors in a row ended before they gave a result of the batch; the "
                f"last: {str(error).partition(':')[0]}"
            ) from error

    @property
    def load(self) -> tuple[int, int, int]:
        is_open, _, waits = super().load
        running = min(len(self._in_flight), self._jobs) if is_open else 0
        kept = len(self._in_flight) + len(self._to_resend)
        return is_open, running, 0 if self.closed else waits + kept - running

    def _open(self) -> Actions[None]:
        self.waits = True
        try:
            yield (yield from self._connect())
            header = yield from self._opened("mapping")
        finally:
            self.waits = False
        window = header.get("window")
        if type(window) is not int or window < 1:
            raise unexpected(header)
        self._window = window
        self._jobs = int(header.get("jobs", window))
        self._output = Output()
        self._to_resend = {**self._in_flight, **self._to_resend}
        self._in_flight, self._end_sent = {}, False

    def _fill(self) -> Actions[None]:
        """Sends tasks until the window is full."""
        while len(self._in_flight) < self._window:
            if self._to_resend:
                index = next(iter(self._to_resend))
                sent = self._to_resend.pop(index)
            elif (taken := self._take()) is not None:
                index, sent = taken
            else:
                break
            self._in_flight[index] = sent
            yield Send(sent.frame)
        if self._ended and not self._to_resend and not self._end_sent:
            self._end_sent = True
            yield Send(_NO_MORE)

    def _take(self) -> tuple[int, Sent] | None:
        """Takes the next task of the source and its number; `None` if none is available yet, or at the
        end."""
        if self._ended:
            return None
        index = self._taken
        try:
            task = self.source.take()
            sent = None if task is PENDING or task is END else prepared(task, index)
        except Exception as error:
            # Raised after the results of the tasks before it.
            task, sent, self._failure = END, None, error
        if sent is None:
            self._ended = task is END
            return None
        self._taken += 1
        return index, sent

    def _handle(self, frame: Frame) -> Actions[TaskResult | None]:
        header = frame.header
        kind, index = header["kind"], header.get("id")
        if kind == "error":
            self._end_with(header)
            return None
        sent = self._in_flight.get(index) if isinstance(index, int) else None
        if not isinstance(index, int) or sent is None or kind not in ("output", "done", "lost"):
            raise unexpected(header)
        if kind == "output":
            yield from self._output.add(frame, self._incoming)
            return None
        if kind == "lost":
            failure = refused(header)
            _events.refused(self, failure)
            execution = None
        else:
            yield from self._output.end()
            failure, execution = None, self._execution(frame, sent)
            _events.cell_ended(self, header["outcome"], "task", index, task=index)
        del self._in_flight[index]
        self._deaths = 0
        verdict, mismatch = (
            None if header.get(k) is None else str(header[k]) for k in ("verdict", "mismatch")
        )
        attempts = int(header.get("attempts", 1))
        return TaskResult(sent.id, index, attempts, execution, failure, verdict, mismatch)

    def _execution(self, frame: Frame, sent: Sent) -> Execution:
        header = frame.header
        buffers = unpack(frame, self._incoming)
        self._check(header)
        output, self._output = self._output, Output()
        assert self.info is not None
        limits: Any = {**self.info.limits, **sent.limits}
        held = _reports.enforced(header.get("enforced", {}))
        info = replace(self.info, enforced=held, limits=limits)
        header = {**header, "session": "ended", "execution_count": 1}
        return Execution(header, output.logs, [], info, buffers=buffers)

    def _end_with(self, header: Mapping[str, Any]) -> None:
        """Records the supervisor's error, which concerns one task or the whole batch."""
        index = header.get("id")
        if index is None:
            self._failure = self._failure or refused(header)
        else:
            sent = self._in_flight.get(index)
            if sent is None:
                raise unexpected(header)
            message = f"{described(sent.id, index)}: {header.get('message')}"
            self._failure = RequestError(message)
            # The supervisor starts no later task.
            self._in_flight = {i: sent for i, sent in self._in_flight.items() if i < index}
        self._to_resend = {}
        # The supervisor may have stopped reading.
        self._ended = self._end_sent = True

    def _check_end(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._in_flight or self._to_resend or not self._ended:
            raise ProtocolError("the supervisor closed a batch whose results had not all come")

    def _notify(self, result: TaskResult) -> Actions[None]:
        """Counts a result and calls `on_progress`."""
        self._done += 1
        if result.status == INFRASTRUCTURE:
            self._lost += 1
        elif not result.ok:
            self._failed += 1
        if self._on_progress is not None:
            elapsed = time.monotonic() - self._begun
            progress = Progress(self._done, self._failed, self._lost, self._total, elapsed)
            yield Notify(self._on_progress, (progress,))


_NO_MORE = encode({"kind": "end"})

"""Runs conversations in the calling thread, which waits for the supervisor itself. No other thread has
to wake it."""

from __future__ import annotations

import inspect
import select
import time
from typing import Any, TypeVar

from . import _supervisor
from ._driver import C, Driver
from ._exceptions import SupervisorDied
from ._frames import Frame
from ._link import DONT_WAIT, Link
from ._steps import Invoke, Notify, Receive, Send, SendCell, StandBy, Steps
from ._tools import is_async

T = TypeVar("T")


class SyncDriver(Driver[C]):
    """Runs the conversations of one session or batch, one at a time."""

    def perform(self, steps: Steps[T]) -> T:
        """Runs a conversation to its end and returns its result. Raises `SessionBusy` at once if another
        conversation is active."""
        self.check()
        turn = object()
        try:
            self.begin(turn)
            result = self._drive(steps)
            self.end()
            return result
        except BaseException as error:
            if self.has(turn):
                try:
                    # Releases what the conversation holds before anything else is sent on the connection.
                    steps.close()
                    self._mend(error)
                finally:
                    self.end()
            raise

    def _mend(self, error: BaseException) -> None:
        """After an exception: makes the session ready for the next request, or ends it."""
        if self.resources.link is None and self.session.link is None:
            return
        try:
            good = self.can_settle(error) and self._drive(self.session.settle())
        except BaseException:
            # The supervisor ended, or a second Ctrl-C arrived: the first exception is reported.
            good = False
        if not good:
            self.lose(error)

    def _drive(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                if isinstance(step, Receive):
                    try:
                        frame = self._receive(step.deadline)
                    except SupervisorDied as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(frame)
                elif isinstance(step, Send):
                    self._send(step)
                    step = steps.send(None)
                elif isinstance(step, (Invoke, Notify)):
                    try:
                        answer = self._call(step)
                    except Exception as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(answer)
                elif isinstance(step, StandBy):
                    _supervisor.stand_by()
                    step = steps.send(None)
                else:
                    link = Link(_supervisor.connect(), blocking=True)
                    step = steps.send(self.take(link))
        except StopIteration as end:
            result: T = end.value
            return result

    def _receive(self, deadline: float | None) -> Frame | None:
        link = self.live_link()
        frame = link.decoder.next_frame()
        while frame is None:
            if deadline is not None and not _wait(link, select.POLLIN, deadline):
                return None
            if not link.read():
                raise link.gone()
            frame = link.decoder.next_frame()
        return frame

    def _send(self, step: Send) -> None:
        link = self.live_link()
        data, descriptor = memoryview(step.data), step.descriptor
        with link.writing:
            # Set exactly here: an interrupt from now on is written after the cell.
            self.session.running |= isinstance(step, SendCell)
            link.half_written = True
            while True:
                data, descriptor = link.write_part(data, descriptor)
                if not data or not _make_room(link):
                    break
            link.half_written = False
        link.flush_interrupt()

    def _call(self, step: Invoke | Notify) -> Any:
        if isinstance(step, Notify):
            return self._result(step.function(step.argument), None)
        if step.timeout is None or is_async(step.function):
            return self._result(step.function(*step.args, **step.kwargs), step.timeout)
        from . import _threads

        future = _threads.start(lambda: step.function(*step.args, **step.kwargs))
        return self._result(_threads.wait_for(future, step.timeout), step.timeout)

    def _result(self, given: Any, timeout: float | None) -> Any:
        """The function's result. An awaitable is awaited in the sandbox's own event loop."""
        if not inspect.isawaitable(given):
            return given
        from . import _threads

        if self.resources.loop is None:
            self.resources.loop = _threads.LoopThread()
        return _threads.wait_for(self.resources.loop.start(given), timeout)


def _make_room(link: Link) -> bool:
    """Waits until the socket accepts more, and reads what arrives meanwhile: the supervisor may wait for us
    to read before it reads. Returns false when the peer is gone."""
    events = _wait(link, select.POLLIN | select.POLLOUT, None)
    try:
        return not events & select.POLLIN or link.read(DONT_WAIT)
    except BlockingIOError:
        return True


def _wait(link: Link, events: int, deadline: float | None) -> int:
    """Waits for the socket and returns its poll events, or 0 when the deadline has passed."""
    poll = select.poll()
    poll.register(link.fileno(), events)
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        for _, found in poll.poll(None if left is None else left * 1e3 + 1):
            return found
        if left == 0.0:
            return 0

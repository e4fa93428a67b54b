"""Carries out conversations in the calling thread, which waits for the supervisor itself: there is no
other thread that it would have to be woken by."""

from __future__ import annotations

import inspect
import select
import threading
import time
from typing import Any, TypeVar

from . import _supervisor
from ._driver import FATAL, C, Driver, busy
from ._exceptions import SupervisorDied
from ._frames import Frame
from ._link import DONT_WAIT, Link
from ._steps import Invoke, Notify, Receive, Send, SendCell, StandBy, Steps
from ._tools import is_async

T = TypeVar("T")


class SyncDriver(Driver[C]):
    """Has the conversations of one session or batch, one at a time."""

    def __init__(self, session: C) -> None:
        super().__init__(session)
        self._turn = threading.Lock()

    def perform(self, steps: Steps[T]) -> T:
        """A conversation from its beginning to its end. Raises `SessionBusy` at once if another is
        under way."""
        self.check()
        if not self._turn.acquire(blocking=False):
            raise busy(self.session)
        try:
            return self._drive(steps)
        except BaseException as error:
            # What it holds goes before anything else is said on the connection.
            steps.close()
            self._mend(error)
            raise
        finally:
            if self.closed:
                self.resources.release()
            self._turn.release()

    def close(self) -> None:
        """From any thread: ends the session. A call that is under way raises `SessionClosed`."""
        self.closed = True
        link = self.resources.link
        if link is None or link.connection.forked or self._turn.acquire(blocking=False):
            self.let_go()
        else:
            link.shut_down()

    def _mend(self, error: BaseException) -> None:
        """After an exception: brings the session to where it can serve the next request, or ends it."""
        if self.resources.link is None:
            return
        try:
            good = not isinstance(error, FATAL) and self._drive(self.session.settle())
        except BaseException:
            # Of the supervisor's end, or a second Ctrl-C: the first exception is the one to tell.
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
        whole = False
        with link.writing:
            # Not before and not after: who interrupts it from now on writes behind it.
            self.session.running |= isinstance(step, SendCell)
            try:
                while True:
                    try:
                        data = data[link.write(data, descriptor) :]
                        descriptor = None
                    except BlockingIOError:
                        pass
                    if not data or not _make_room(link):
                        break
                whole = True
            finally:
                if not whole:
                    # Half a message: nothing that follows it would be understood.
                    link.shut_down()
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
        """What a function gave, awaited in the sandbox's own event loop if it has to be."""
        if not inspect.isawaitable(given):
            return given
        from . import _threads

        if self.resources.loop is None:
            self.resources.loop = _threads.LoopThread()
        return _threads.wait_for(self.resources.loop.start(given), timeout)


def _make_room(link: Link) -> bool:
    """Waits until the socket takes more, and takes in what comes meanwhile: the supervisor may be
    waiting for us to read before it reads. False when the other side is gone."""
    events = _wait(link, select.POLLIN | select.POLLOUT, None)
    try:
        return not events & select.POLLIN or link.read(DONT_WAIT)
    except BlockingIOError:
        return True


def _wait(link: Link, events: int, deadline: float | None) -> int:
    """Waits for the socket; 0 when the deadline is over."""
    poll = select.poll()
    poll.register(link.fileno(), events)
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        for _, found in poll.poll(None if left is None else left * 1e3 + 1):
            return found
        if left == 0.0:
            return 0

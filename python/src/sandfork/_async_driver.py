"""Carries out conversations in an asyncio event loop, which waits for the supervisor's socket itself:
no thread is needed, but for tools that are not async."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any, Callable, TypeVar

from . import _supervisor, _threads
from ._driver import FATAL, C, Driver, busy
from ._exceptions import SupervisorDied
from ._frames import Frame
from ._link import Link
from ._steps import Invoke, Notify, Receive, Send, SendCell, StandBy, Steps
from ._tools import is_async

T = TypeVar("T")


class AsyncDriver(Driver[C]):
    """Has the conversations of one session or batch, one at a time."""

    def __init__(self, session: C) -> None:
        super().__init__(session)
        self._busy = False

    async def perform(self, steps: Steps[T]) -> T:
        """A conversation from its beginning to its end. Raises `SessionBusy` at once if another is
        under way. A task that is cancelled interrupts its cell, and waits a little for its end."""
        self.check()
        if self._busy:
            raise busy(self.session)
        self._busy = True
        try:
            return await self._drive(steps)
        except BaseException as error:
            # What it holds goes before anything else is said on the connection.
            steps.close()
            await self._mend(error)
            raise
        finally:
            self._busy = False
            if self.closed:
                self.resources.release()

    def close(self) -> None:
        """Ends the session. A call that is under way raises `SessionClosed`."""
        self.closed = True
        link = self.resources.link
        if link is not None and self._busy and not link.connection.forked:
            link.shut_down()
        else:
            self.let_go()

    async def in_thread(self, function: Callable[[], T]) -> T:
        """What a function gives that would hold up the loop."""
        result: T = await asyncio.wrap_future(_threads.start(function))
        return result

    async def _mend(self, error: BaseException) -> None:
        """After an exception: brings the session to where it can serve the next request, or ends it."""
        if self.resources.link is None:
            return
        try:
            good = not isinstance(error, FATAL) and await self._drive(self.session.settle())
        except BaseException:
            # Of the supervisor's end, or a second cancellation: the first is the one to tell.
            good = False
        if not good:
            self.lose(error)

    async def _drive(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                if isinstance(step, Receive):
                    try:
                        frame = await self._receive(step)
                    except SupervisorDied as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(frame)
                elif isinstance(step, Send):
                    await self._send(step)
                    step = steps.send(None)
                elif isinstance(step, (Invoke, Notify)):
                    try:
                        answer = await _call(step)
                    except Exception as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(answer)
                elif isinstance(step, StandBy):
                    _supervisor.stand_by()
                    step = steps.send(None)
                else:
                    link = Link(_supervisor.connect(), blocking=False)
                    step = steps.send(self.take(link))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _receive(self, step: Receive) -> Frame | None:
        link = self.live_link()
        frame = link.decoder.next_frame()
        while frame is None:
            try:
                if not link.read():
                    raise link.gone()
            except BlockingIOError:
                if not await _wait(link, step.deadline, wake=step.wake):
                    return None
            else:
                frame = link.decoder.next_frame()
        return frame

    async def _send(self, step: Send) -> None:
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
                    if not data or not await _make_room(link):
                        break
                whole = True
            finally:
                if not whole:
                    # Half a message: nothing that follows it would be understood.
                    link.shut_down()
        link.flush_interrupt()


async def _make_room(link: Link) -> bool:
    """Waits until the socket takes more, and takes in what comes meanwhile: the supervisor may be
    waiting for us to read before it reads. False when the other side is gone."""
    await _wait(link, None, writable=True)
    try:
        return link.read()
    except BlockingIOError:
        return True


async def _wait(
    link: Link, deadline: float | None, *, writable: bool = False, wake: asyncio.Future[Any] | None = None
) -> bool:
    """Waits until the socket can be read, or written too; false when the deadline is over or `wake` is
    done."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[bool] = loop.create_future()

    def tell(found: bool) -> None:
        if not ready.done():
            ready.set_result(found)

    def told(_: asyncio.Future[Any]) -> None:
        tell(False)

    descriptor = link.fileno()
    timer = None
    if deadline is not None:
        timer = loop.call_later(max(0.0, deadline - time.monotonic()), tell, False)
    loop.add_reader(descriptor, tell, True)
    try:
        if wake is not None:
            wake.add_done_callback(told)
        if writable:
            loop.add_writer(descriptor, tell, True)
        return await ready
    finally:
        loop.remove_reader(descriptor)
        if writable:
            loop.remove_writer(descriptor)
        if timer is not None:
            timer.cancel()
        if wake is not None:
            wake.remove_done_callback(told)


async def _call(step: Invoke | Notify) -> Any:
    if isinstance(step, Notify):
        given = step.function(step.argument)
        return await given if inspect.isawaitable(given) else given
    if is_async(step.function):
        return await _within(step.function(*step.args, **step.kwargs), step.timeout)
    # It may take its time, and the loop has others to serve.
    future = _threads.start(lambda: step.function(*step.args, **step.kwargs))
    try:
        given = await _within(asyncio.wrap_future(future), step.timeout)
    except BaseException:
        _threads.abandon(future)
        raise
    return await _within(given, step.timeout) if inspect.isawaitable(given) else given


async def _within(awaitable: Any, timeout: float | None) -> Any:
    if timeout is None:
        return await awaitable
    task = asyncio.ensure_future(awaitable)
    try:
        return await asyncio.wait_for(task, timeout)
    except asyncio.TimeoutError:
        if not task.cancelled():
            # It is what the function itself raised.
            raise
        raise TimeoutError(f"the host's function took more than {timeout:g} s") from None

"""Runs conversations in an asyncio event loop. The loop waits for the supervisor's socket itself, so only
tools that are not async need a thread."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any, Callable, TypeVar

from . import _supervisor, _threads
from ._driver import C, Driver
from ._exceptions import SupervisorDied
from ._frames import Frame
from ._link import Link
from ._steps import Invoke, Notify, Receive, Send, SendCell, StandBy, Steps
from ._tools import is_async

T = TypeVar("T")


class AsyncDriver(Driver[C]):
    """Runs the conversations of one session or batch, one at a time."""

    async def perform(self, steps: Steps[T]) -> T:
        """Runs a conversation to its end and returns its result. Raises `SessionBusy` at once if another
        conversation is active. A cancelled task interrupts its cell and waits briefly for the cell to end."""
        self.check()
        turn = object()
        try:
            self.begin(turn)
            result = await self._drive(steps)
            self.end()
            return result
        except BaseException as error:
            if self.has(turn):
                try:
                    # Releases what the conversation holds before anything else is sent on the connection.
                    steps.close()
                    await self._mend(error)
                finally:
                    self.end()
            raise

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Runs a blocking function in a thread and returns its result."""
        result: T = await asyncio.wrap_future(_threads.start(function))
        return result

    async def _mend(self, error: BaseException) -> None:
        """After an exception: makes the session ready for the next request, or ends it."""
        if self.resources.link is None and self.session.link is None:
            return
        try:
            good = self.can_settle(error) and await self._drive(self.session.settle())
        except BaseException:
            # The supervisor ended, or the task was cancelled again: the first exception is reported.
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
        with link.writing:
            # Set exactly here: an interrupt from now on is written after the cell.
            self.session.running |= isinstance(step, SendCell)
            link.half_written = True
            while True:
                data, descriptor = link.write_part(data, descriptor)
                if not data or not await _make_room(link):
                    break
            link.half_written = False
        link.flush_interrupt()


async def _make_room(link: Link) -> bool:
    """Waits until the socket accepts more, and reads what arrives meanwhile: the supervisor may wait for us
    to read before it reads. Returns false when the peer is gone."""
    await _wait(link, None, writable=True)
    try:
        return link.read()
    except BlockingIOError:
        return True


async def _wait(
    link: Link, deadline: float | None, *, writable: bool = False, wake: asyncio.Future[Any] | None = None
) -> bool:
    """Waits until the socket is readable, or with `writable` also until it is writable. Returns false when
    the deadline has passed or `wake` is done."""
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
    # The function may be slow, and it must not block the loop.
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
            # The function itself raised the exception.
            raise
        raise TimeoutError(f"the host's function took more than {timeout:g} s") from None

"""Runs code with top-level `await` on an event loop."""

import sys

# `CO_COROUTINE` of CPython's Include/cpython/code.h.
CO_COROUTINE = 0x80
# A cell of a session that uses one of these names needs a running loop.
LOOP_NAMES = frozenset(("create_task", "ensure_future", "get_running_loop"))
# A cell that uses one of these names runs its own loop.
OWN_LOOP_NAMES = frozenset(("run", "run_forever", "run_until_complete"))


def awaits(codes):
    """Returns whether code runs on an event loop because it awaits. All other code of a program runs outside
    of a loop."""
    return any(code is not None and code.co_flags & CO_COROUTINE for code in codes)


def uses_loop(codes):
    """Returns whether a cell that does not await runs on the event loop nevertheless. All other cells run
    outside of it, so that they may call `asyncio.run`."""
    names = [name for code in codes if code is not None for name in code.co_names]
    return not LOOP_NAMES.isdisjoint(names) and OWN_LOOP_NAMES.isdisjoint(names)


async def evaluate(codes, namespace):
    value = None
    for code in codes:
        if code is not None:
            value = eval(code, namespace)
            if code.co_flags & CO_COROUTINE:
                value = await value
    return value


class EventLoop:
    """The event loop of a program or session. Its tasks run while cells await, and between cells."""

    loop = None
    # The context variables of all cells. Since Python 3.11 a task can be given a context.
    context = None
    # Evaluates code outside of the loop.
    call = eval

    def run(self, codes, namespace):
        """Runs code on the loop and returns its value."""
        import asyncio

        if not self.is_open():
            self.loop = asyncio.new_event_loop()
        # Set each time, because `asyncio.run` in a cell unsets it.
        asyncio.set_event_loop(self.loop)
        options = {}
        if sys.version_info >= (3, 11):
            if self.context is None:
                from contextvars import copy_context
                from functools import partial

                self.context = copy_context()
                self.call = partial(self.context.run, eval)
            options["context"] = self.context
        task = self.loop.create_task(evaluate(codes, namespace), **options)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if task.done() and not task.cancelled() and task.exception() is None:
                # Another task raised `SystemExit` just as this task completed.
                return task.result()
            self.abandon(task)
            raise

    def is_open(self):
        return self.loop is not None and not self.loop.is_closed()

    def run_until_request(self, link):
        """Runs the loop until the link has a request."""
        loop, arrived = self.loop, False

        def look():
            # If another thread reads the link, the data is that thread's reply, or that thread hands the
            # request over.
            if link.requests.messages or not link.reading:
                stop()

        def stop():
            nonlocal arrived
            arrived = True
            loop.stop()

        loop.add_reader(link.socket, look)
        link.on_request = lambda: loop.call_soon_threadsafe(stop)
        try:
            while not arrived and not link.requests.messages:
                try:
                    loop.run_forever()
                except (KeyboardInterrupt, SystemExit):
                    # A task's `SystemExit` does not end the session. An interrupt is meant for the request
                    # that has arrived.
                    arrived = arrived or link.has_input()
        finally:
            link.on_request = None
            loop.remove_reader(link.socket)

    def close_descriptors(self):
        """Closes the descriptors of a loop that waits for timers only, until `open_descriptors`. A copy of
        this worker opens its own. A loop with other descriptors keeps them, so that the supervisor sees
        them."""
        loop = self.loop
        if not self.is_open() or not hasattr(loop, "_make_self_pipe"):
            return
        if len(loop._selector.get_map()) == 1:
            loop._close_self_pipe()
            loop._selector.close()

    def open_descriptors(self):
        loop = self.loop
        if self.is_open() and getattr(loop, "_ssock", self) is None:
            loop._selector = type(loop._selector)()
            loop._make_self_pipe()

    def abandon(self, task):
        """Cancels an interrupted task, so that it does not run during the next cell."""
        if task.done():
            return
        task.cancel()
        try:
            self.loop.run_until_complete(task)
        except BaseException:
            # The task's cancellation, or an exception of its cleanup.
            pass

    def close(self):
        """Cancels remaining tasks and closes the loop, as `asyncio.run` does at its end."""
        if self.loop is None or self.loop.is_closed():
            return
        from asyncio.runners import _cancel_all_tasks

        try:
            _cancel_all_tasks(self.loop)
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()

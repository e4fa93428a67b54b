"""Where host tools run that cannot run in the calling thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Callable


def start(function: Callable[[], Any]) -> Future[Any]:
    """Calls a function in a thread of its own, with the context variables of this one.

    The thread is a daemon: a function that never returns keeps no process from exiting.
    """
    future: Future[Any] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            # Whoever wanted it waits no more.
            return
        try:
            result = context.run(function)
        except StopIteration:
            # A future cannot hold one: whoever awaited it would seem to be done.
            future.set_exception(RuntimeError("the function raised StopIteration"))
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="sandfork-tool", daemon=True).start()
    return future


def wait_for(future: Future[Any], timeout: float | None) -> Any:
    """What a function gives that runs in another thread."""
    try:
        return future.result(timeout)
    except FutureTimeout:
        if future.done():
            # The function itself raised that, or has just ended.
            return future.result()
        abandon(future)
        raise TimeoutError(f"the host's function took more than {timeout:g} s") from None
    except BaseException:
        abandon(future)
        raise


def abandon(future: Future[Any]) -> None:
    """Nobody waits any more for what a function gives."""
    future.cancel()
    future.add_done_callback(_discard)


def _discard(future: Future[Any]) -> None:
    if not future.cancelled() and future.exception() is None and inspect.iscoroutine(future.result()):
        # Otherwise Python would warn of it, once it is collected as garbage.
        future.result().close()


class LoopThread:
    """An event loop of a sandbox's own, for async tools of callers that have none. It lives as long
    as the sandbox, so that clients of one call are good for the next."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, awaitable: Any) -> Future[Any]:
        """Runs something that can be awaited, with the context variables of this thread."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=(self._loop,), name="sandfork-loop", daemon=True)
            thread.start()
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop)

    def stop(self) -> None:
        """Cancels what runs in it, and ends it."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _awaited(awaitable: Any) -> Any:
    return await awaitable

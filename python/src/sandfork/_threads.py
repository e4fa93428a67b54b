"""Threads for host tools that cannot run in the calling thread, and event loops for async tools."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from concurrent.futures import Future, wait
from typing import Any, Callable

from ._exceptions import RequestError


def start(function: Callable[[], Any]) -> Future[Any]:
    """Calls a function in a new thread, with the context variables of this one.

    The thread is a daemon, so a function that never returns does not keep the process from exiting.
    """
    future: Future[Any] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            # The waiter has given up.
            return
        try:
            result = context.run(function)
        except StopIteration:
            # A future cannot hold `StopIteration`: its awaiter would seem to have finished.
            future.set_exception(RuntimeError("the function raised StopIteration"))
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="sandfork-tool", daemon=True).start()
    return future


def wait_for(future: Future[Any], timeout: float | None) -> Any:
    """Waits for the result of a function in another thread. Raises `TimeoutError` after `timeout` seconds."""
    try:
        if not wait((future,), timeout).done:
            raise TimeoutError(f"the host's function took more than {timeout:g} s")
        return future.result()
    except BaseException:
        abandon(future)
        raise


def abandon(future: Future[Any]) -> None:
    """Discards the result of a function whose caller has stopped waiting."""
    future.cancel()
    future.add_done_callback(_discard)


def check_loop() -> None:
    """Raises `RequestError` if no asyncio event loop is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RequestError(
            "AsyncSandbox, async_run and async_map need a running event loop of asyncio: under trio, use "
            "Sandbox, run and map in a thread (trio.to_thread.run_sync)"
        ) from None


def _discard(future: Future[Any]) -> None:
    if not future.cancelled() and future.exception() is None and inspect.iscoroutine(future.result()):
        # Otherwise Python would warn about the coroutine when it is garbage-collected.
        future.result().close()


class LoopThread:
    """A sandbox's event loop for async tools of a blocking caller. It lives as long as the sandbox, so that a
    client that is created in one call can be used in the next."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=_serve, args=(self._loop,), name="sandfork-loop", daemon=True).start()

    def start(self, awaitable: Any) -> Future[Any]:
        """Runs an awaitable with the context variables of this thread."""
        return asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop)

    def stop(self) -> None:
        """Cancels the running tasks and ends the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)


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

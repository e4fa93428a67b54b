"""The steps that a conversation with the supervisor requests from its driver.

A conversation is a generator that does no I/O itself: it yields a step and is resumed with the answer.
`_sync_driver` and `_async_driver` execute the steps. `Sandbox` and `AsyncSandbox` differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Callable, TypeVar, Union

T = TypeVar("T")


class Connect:
    """Replace the connection to the supervisor with a new one. The answer is the `Link`."""

    __slots__ = ()


class StandBy:
    """Prepare another connection for the next session, in the time while a first cell runs. No answer."""

    __slots__ = ()


class Send:
    """Write bytes, and optionally one descriptor with the first of them. No answer."""

    __slots__ = ("data", "descriptor")

    def __init__(self, data: bytes, descriptor: int | None = None) -> None:
        self.data = data
        self.descriptor = descriptor


class SendCell(Send):
    """Write the bytes of a cell. The cell then runs and can be interrupted. No answer."""

    __slots__ = ()


class Receive:
    """Wait for a frame. The answer is the frame, or `None` when the deadline (in `time.monotonic` seconds)
    has passed or `wake`, a future of the event loop, is done. Raises `SupervisorDied` in the conversation if
    the supervisor is gone."""

    __slots__ = ("deadline", "wake")

    def __init__(self, deadline: float | None = None, *, wake: Any = None) -> None:
        self.deadline = deadline
        self.wake = wake


class Invoke:
    """Call a function of the host. The answer is its result; an awaitable is awaited first. The function's
    exceptions are raised in the conversation.

    `timeout` is in seconds; when it has passed, `TimeoutError` is raised. With a timeout, a function that is
    not async runs in a thread, which is abandoned at the timeout.
    """

    __slots__ = ("args", "function", "kwargs", "timeout")

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = {},
        timeout: float | None = None,
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.timeout = timeout


class Notify:
    """Call a callback with one argument in the caller's own thread, and await its result if it is awaitable.
    No answer. An exception of the callback ends the conversation."""

    __slots__ = ("argument", "function")

    def __init__(self, function: Callable[[Any], Any], argument: Any) -> None:
        self.function = function
        self.argument = argument


Step = Union[Connect, StandBy, Send, Receive, Invoke, Notify]
Steps = Generator[Step, Any, T]

CONNECT = Connect()
STAND_BY = StandBy()
RECEIVE = Receive()

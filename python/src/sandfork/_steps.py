"""What a conversation with the supervisor asks its driver to do.

A conversation is a generator that does no input or output of its own: it yields one of these and is
resumed with the answer. `_sync_driver` and `_async_driver` carry them out, so that `Sandbox` and
`AsyncSandbox` differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Callable, TypeVar, Union

T = TypeVar("T")


class Connect:
    """Make a new connection to the supervisor in place of the present one. No answer."""

    __slots__ = ()


class StandBy:
    """Have another connection ready for the next session: there is time while a first cell runs. No
    answer."""

    __slots__ = ()


class Send:
    """Write bytes, with at most one descriptor beside the first of them. No answer."""

    __slots__ = ("data", "descriptor")

    def __init__(self, data: bytes, descriptor: int | None = None) -> None:
        self.data = data
        self.descriptor = descriptor


class SendCell(Send):
    """The same, of a cell: it runs from then on, and can be interrupted."""

    __slots__ = ()


class Receive:
    """Wait for a frame. The answer is it, or `None` when the deadline (of `time.monotonic`) is over, or
    when `wake`, a future of the event loop, is done. `SupervisorDied` is raised in the conversation when
    there will be none."""

    __slots__ = ("deadline", "wake")

    def __init__(self, deadline: float | None = None, *, wake: Any = None) -> None:
        self.deadline = deadline
        self.wake = wake


class Invoke:
    """Call a function of the host. The answer is what it gives, awaited if that can be awaited; what it
    raises is raised in the conversation.

    With a timeout, seconds, `TimeoutError` is raised when it is over; a function that is not async
    then runs in a thread, and is left to itself.
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
    """Call a callback with one argument, in the caller's own thread, and await what it gives if that
    can be awaited. No answer; what it raises ends the conversation."""

    __slots__ = ("argument", "function")

    def __init__(self, function: Callable[[Any], Any], argument: Any) -> None:
        self.function = function
        self.argument = argument


Step = Union[Connect, StandBy, Send, Receive, Invoke, Notify]
Steps = Generator[Step, Any, T]

CONNECT = Connect()
STAND_BY = StandBy()
RECEIVE = Receive()

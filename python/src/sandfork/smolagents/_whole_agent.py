"""Runs a whole agent in a sandbox, while its model and the model's key stay on the host."""

from __future__ import annotations

import logging
from importlib import resources
from types import SimpleNamespace
from typing import Any, TypeVar

import PIL.Image
from smolagents import ChatMessage, Model
from smolagents.models import MessageRole

from sandfork import Sandbox, Tool

T = TypeVar("T")

_GUEST_FILE = "host_model.py"
_log = logging.getLogger("sandfork.smolagents")


def lend_model(sandbox: Sandbox, model: Model, name: str = "model") -> None:
    """Lets an agent in this sandbox use a model that stays on the host.

    The agent's program runs `from host_model import HostModel` and creates its agents with
    `model=HostModel()`, or with `HostModel(name)` if several models are lent. The sandbox's `tool_budget`
    bounds the number of requests, and its `tool_timeout` the time of a reply. Together they bound the total
    time that the program may wait for the model; `tool_time` sets it directly.

    Only `model.generate` is lent, with messages of text and images, and neither the model's attributes nor
    its other parameters. The reason for a failure is logged on the host (`sandfork.smolagents`) and not sent,
    because a client's message can contain its key or its address.
    """
    lent = _LentModel(model, name)
    doc = "Answers messages. Made to be called by host_model.HostModel."
    sandbox.add_tools([Tool(name, lent.answer, doc=doc)])
    source = resources.files(__package__).joinpath(_GUEST_FILE).read_text(encoding="utf-8")
    sandbox.files.write(_GUEST_FILE, source)


class _LentModel:
    """The interface of a model for code in a sandbox. It checks all arguments, because they are untrusted."""

    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self._name = name

    def answer(
        self,
        messages: list[Any],
        stop_sequences: list[Any] | None = None,
        response_format: dict[str, Any] | None = None,
        tools: list[Any] | None = None,
    ) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if stop_sequences is not None:
            options["stop_sequences"] = [_checked(stop, str) for stop in _list(stop_sequences)]
        if response_format is not None:
            options["response_format"] = _plain(response_format)
        if tools:
            options["tools_to_call_from"] = [_tool(tool) for tool in _list(tools)]
        requests = [_message(message) for message in _list(messages)]
        try:
            reply = self._model.generate(requests, **options)
        except Exception as error:
            _log.warning("the model that is lent as %r failed", self._name, exc_info=True)
            raise RuntimeError(
                f"the host's model failed ({type(error).__name__}); the host's log has the reason"
            ) from None
        return _answer(reply)


def _answer(reply: ChatMessage) -> dict[str, Any]:
    usage = reply.token_usage
    return {
        "role": MessageRole(reply.role).value,
        "content": reply.content,
        "tool_calls": [
            {
                "id": call.id,
                "type": call.type,
                "name": call.function.name,
                "arguments": call.function.arguments,
            }
            for call in reply.tool_calls or ()
        ],
        "tokens": None if usage is None else [usage.input_tokens, usage.output_tokens],
    }


def _message(received: Any) -> ChatMessage:
    message = _checked(received, dict)
    content = message.get("content")
    if isinstance(content, list):
        content = [_part(part) for part in content]
    elif content is not None:
        content = _checked(content, str)
    return ChatMessage(role=MessageRole(message.get("role")), content=content)


def _part(received: Any) -> dict[str, Any]:
    """Returns a text part, or an image part with pixels. A URL or a path is rejected: the host would fetch
    it."""
    part = _checked(received, dict)
    if part.get("type") == "text":
        return {"type": "text", "text": _checked(part.get("text"), str)}
    if part.get("type") == "image" and isinstance(part.get("image"), PIL.Image.Image):
        return {"type": "image", "image": part["image"]}
    raise ValueError(f"a message holds a {part.get('type')!r}: only text and images can be sent")


def _tool(received: Any) -> Any:
    """Returns an object with the attributes of a tool that a model reads."""
    tool = _checked(received, dict)
    return SimpleNamespace(
        name=_checked(tool.get("name"), str),
        description=_checked(tool.get("description"), str),
        inputs=_plain(_checked(tool.get("inputs"), dict)),
        output_type=_checked(tool.get("output_type"), str),
    )


def _plain(received: Any) -> Any:
    """Returns a value in JSON types, for a request."""
    if received is None or isinstance(received, (bool, int, float, str)):
        return received
    if isinstance(received, (list, tuple)):
        return [_plain(item) for item in received]
    return {_checked(key, str): _plain(value) for key, value in _checked(received, dict).items()}


def _list(received: Any) -> list[Any]:
    return list(received if isinstance(received, tuple) else _checked(received, list))


def _checked(received: Any, kind: type[T]) -> T:
    if not isinstance(received, kind):
        raise TypeError(f"a {kind.__name__} was expected, not {type(received).__name__}")
    return received

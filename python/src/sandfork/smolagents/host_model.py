"""A model for agents in a sandbox, which forwards requests to the host. This module runs in the sandbox.

`sandfork.smolagents.lend_model` writes this file into the agent's work directory. It needs smolagents,
but not the package `sandfork`.
"""

from __future__ import annotations

from typing import Any

import sandfork_host  # type: ignore[import-not-found]
from smolagents import ChatMessage, Model
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole
from smolagents.monitoring import TokenUsage

_OF_A_TOOL = ("name", "description", "inputs", "output_type")


class HostModel(Model):
    """A model that stays on the host, with its client and its key. `name` is the name given to `lend_model`.

    Only messages, stop sequences, the response format and the descriptions of tools are sent. The host
    configures the model.
    """

    def __init__(self, name: str = "model") -> None:
        super().__init__(model_id=f"host:{name}")
        self._name = name

    def generate(
        self,
        messages: list[Any],
        stop_sequences: list[str] | None = None,
        response_format: dict[str, Any] | None = None,
        tools_to_call_from: list[Any] | None = None,
        **kwargs: Any,
    ) -> ChatMessage:
        answer = getattr(sandfork_host, self._name)(
            messages=[_sent(message) for message in messages],
            stop_sequences=stop_sequences,
            response_format=response_format,
            tools=[{key: getattr(tool, key) for key in _OF_A_TOOL} for tool in tools_to_call_from or ()],
        )
        return _received(answer)


def _sent(message: Any) -> dict[str, Any]:
    if not isinstance(message, ChatMessage):
        message = ChatMessage(role=message["role"], content=message["content"])
    return {"role": MessageRole(message.role).value, "content": message.content}


def _received(answer: dict[str, Any]) -> ChatMessage:
    calls = [
        ChatMessageToolCall(
            ChatMessageToolCallFunction(call["arguments"], call["name"]), call["id"], call["type"]
        )
        for call in answer["tool_calls"]
    ]
    tokens = answer["tokens"]
    return ChatMessage(
        role=MessageRole(answer["role"]),
        content=answer["content"],
        tool_calls=calls or None,
        token_usage=None if tokens is None else TokenUsage(*tokens),
    )

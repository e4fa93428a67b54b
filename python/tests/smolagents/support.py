"""Agents that follow a test's script."""

from __future__ import annotations

from typing import Any

from smolagents import ChatMessage, CodeAgent, Model
from smolagents.models import MessageRole
from smolagents.monitoring import LogLevel, TokenUsage

import sandfork.smolagents  # noqa: F401, makes executor_type="native" known


class Script(Model):
    """A model that returns these pieces of code one after the other, and records its requests."""

    def __init__(self, *codes: str) -> None:
        super().__init__(model_id="script")
        self.codes = list(codes)
        self.asked: list[str] = []

    def generate(self, messages: list[Any], **kwargs: Any) -> ChatMessage:
        self.asked.append("\n".join(map(text_of, messages)))
        code = self.codes.pop(0)
        return ChatMessage(
            role=MessageRole.ASSISTANT,
            content=f"Thought: go on.\n<code>\n{code}\n</code>",
            token_usage=TokenUsage(input_tokens=1, output_tokens=1),
        )


def text_of(message: Any) -> str:
    """The text that a model reads of a message."""
    if isinstance(message.content, list):
        return "\n".join(str(part.get("text")) for part in message.content)
    return str(message.content)


def code_agent(*codes: str, **options: Any) -> CodeAgent:
    """An agent that runs these pieces of code."""
    options = {"tools": [], "executor_type": "native", "verbosity_level": LogLevel.OFF, **options}
    return CodeAgent(model=Script(*codes), **options)

"""A model that returns scripted answers, so that the examples run offline.

Replace it by a real one: `InferenceClientModel()`, `LiteLLMModel(...)`, any `smolagents.Model`.
"""

from smolagents import ChatMessage, Model
from smolagents.models import MessageRole


class ScriptedModel(Model):
    def __init__(self, *codes: str) -> None:
        super().__init__(model_id="scripted")
        self.codes = list(codes)

    def generate(self, messages, **kwargs) -> ChatMessage:
        code = self.codes.pop(0)
        return ChatMessage(
            role=MessageRole.ASSISTANT, content=f"<code>\n{code}\n</code>"
        )

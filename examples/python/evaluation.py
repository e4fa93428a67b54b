"""An evaluation of inspect_ai whose model works in a sandbox. A scripted model replaces the real one.

pip install 'sandfork[inspect]'
python examples/python/evaluation.py
"""

import tempfile

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelAPI, ModelOutput, modelapi
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, python

import sandfork.inspect_ai  # noqa: F401


@modelapi(name="scripted")
class Scripted(ModelAPI):
    """Gives these outputs, one after the other."""

    def __init__(self, model_name: str, **options: object) -> None:
        super().__init__(model_name)
        self.outputs = iter(
            [
                # It looks around, ...
                calls("bash", command="cat words.txt; cat /etc/shadow"),
                # ... computes, ...
                calls("python", code="print(max(open('words.txt').read().split(), key=len))"),
                # ... and answers.
                ModelOutput.from_content("script", "It is 'sandbox'."),
            ]
        )

    async def generate(self, **conversation: object) -> ModelOutput:
        return next(self.outputs)

    async def count_text_tokens(self, text: str) -> int:
        # The default asks the network for a tokenizer.
        return len(text) // 4


def calls(tool: str, **arguments: str) -> ModelOutput:
    return ModelOutput.for_tool_call("script", tool, arguments)


task = Task(
    dataset=[
        Sample(
            input="Which word of words.txt is the longest?",
            target="sandbox",
            files={"words.txt": "a sandbox of sand"},
        )
    ],
    solver=[use_tools(bash(timeout=10), python(timeout=10)), generate()],
    scorer=includes(),
    sandbox="sandfork",
)

with tempfile.TemporaryDirectory() as logs:
    (log,) = eval(task, model="scripted/script", log_dir=logs, display="none")
    print("status:", log.status)
    for message in log.samples[0].messages:
        if message.role == "tool":
            print(f"{message.function}:", message.error or message.text.strip())
    print("accuracy:", log.results.scores[0].metrics["accuracy"].value)

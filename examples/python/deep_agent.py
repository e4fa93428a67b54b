"""An agent of deepagents whose files and commands are in a sandbox. A scripted model replaces the real one.

pip install 'sandfork[deepagents]'
python examples/python/deep_agent.py
"""

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from sandfork.deepagents import SandforkBackend


class ScriptedModel(GenericFakeChatModel):
    """Calls these tools, one after the other."""

    def bind_tools(self, tools: list, **options: object) -> "ScriptedModel":
        return self


def calls(tool: str, **arguments: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": tool}])


model = ScriptedModel(
    messages=iter(
        [
            calls(
                "write_file",
                file_path="/work/primes.py",
                content="print([n for n in range(2, 30) if all(n % d for d in range(2, n))])",
            ),
            calls("execute", command="python3 primes.py; cat /etc/shadow"),
            AIMessage("The last prime below 30 is 29."),
        ]
    )
)

with SandforkBackend() as backend:
    agent = create_deep_agent(model=model, backend=backend)
    answer = agent.invoke({"messages": "What is the last prime below 30?"})
    for message in answer["messages"]:
        if message.type == "tool":
            print(f"{message.name}:", message.text.replace("\n", " | "))
    print("answer:", answer["messages"][-1].text)
    print("file:", backend.download_files(["/work/primes.py"])[0].content[:8])

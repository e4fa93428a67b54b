"""Runs inside a sandbox; `../whole_agent.py` starts it there."""

import os
import sys

from host_model import HostModel
from smolagents import CodeAgent, tool


@tool
def shout(text: str) -> str:
    """Says it loud.

    Args:
        text: The text to say.
    """
    return text.upper() + "!"


def agent(**options) -> CodeAgent:
    # The local executor is enough, because the sandbox contains the whole program.
    return CodeAgent(model=HostModel(), verbosity_level=0, **options)


counter = agent(tools=[], name="counter", description="Counts the words of a text.")
shouter = agent(tools=[shout], name="shouter", description="Says a text loud.")
manager = agent(tools=[], managed_agents=[counter, shouter])

print("answer:", manager.run("Count and shout.", additional_args={"text": sys.argv[1]}))
print(
    "keys in the environment:",
    [name for name in os.environ if "KEY" in name or "TOKEN" in name],
)

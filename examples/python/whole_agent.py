"""A whole multi-agent program in one sandbox, with its model outside.

    pip install 'sandfork[smolagents]'
    python examples/python/whole_agent.py

The agents run entirely in the sandbox: their loops, their memory, their tools, the code that they write.
The program imports smolagents from the environment of this interpreter, mounted read-only. It does not have
the model's key: it calls the model by name, and this process answers.
"""

import sys
from pathlib import Path

from scripted_model import ScriptedModel

from sandfork import Policy, Sandbox
from sandfork.smolagents import lend_model

PROGRAM = Path(__file__).parent / "whole_agent" / "agent.py"

policy = Policy(
    # A virtual environment with smolagents in it. Preloading imports it once for all sandboxes.
    python={"interpreter": sys.executable, "preload": ["smolagents"]},
    limits={"wall": "60s", "cpu": "60s"},
)
# The manager's answer, the answers of its two agents, and the manager's answer to those.
model = ScriptedModel(
    "parts = [counter('Count.', additional_args={'text': text}), shouter(text)]\nprint(parts)",
    "final_answer(len(text.split()))",
    "final_answer(shout('the sandbox holds'))",
    "final_answer(' / '.join(part.split('\\n')[-1] for part in parts))",
)

with Sandbox(policy, tool_budget=10, tool_timeout=120) as sandbox:
    lend_model(sandbox, model)
    done = sandbox.run_file(PROGRAM, argv=["the sandbox holds"])
    print("".join(done.logs.stdout), end="")
    print("ended:", done.status, "" if done.error is None else done.error.value)

"""An agent of the OpenAI Agents SDK, with its shell and files in a sandbox. A scripted model replaces the real one.

pip install 'sandfork[openai-agents]'
python examples/python/sandbox_agent.py
"""

import asyncio

from agents import Runner, set_tracing_disabled
from agents.run_config import RunConfig, SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.entries import File
from agents.testing import ScriptedModel, assistant_message, function_call

from sandfork.openai_agents import SandforkSandboxClient, SandforkSandboxClientOptions

CODE = "print([n for n in range(2, int(open('limit').read())) if all(n % d for d in range(2, n))])"

# By default the SDK sends a trace of each run to the model's provider.
set_tracing_disabled(True)


def shell(command: str, call_id: str) -> list:
    return [function_call("exec_command", {"cmd": command}, call_id=call_id)]


model = ScriptedModel(
    [
        shell(f'echo "{CODE}" > primes.py; python3 primes.py', "1"),
        shell("cat /etc/shadow", "2"),
        [assistant_message("The last prime below 30 is 29.")],
    ]
)


async def main() -> None:
    agent = SandboxAgent(
        name="mathematician",
        model=model,
        default_manifest=Manifest(entries={"limit": File(content=b"30")}),
    )
    options = SandforkSandboxClientOptions(timeout=60)
    config = RunConfig(sandbox=SandboxRunConfig(client=SandforkSandboxClient(), options=options))
    result = await Runner.run(agent, "What is the last prime below 30?", run_config=config)
    for item in result.new_items:
        if item.type == "tool_call_output_item":
            print("exec_command:", " | ".join(item.output.splitlines()[-2:]))
    print("answer:", result.final_output)


asyncio.run(main())

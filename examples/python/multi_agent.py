"""A manager and the agent that it manages, each with its code in its own sandbox.

    pip install 'sandfork[smolagents]'
    python examples/python/multi_agent.py

smolagents' remote executors do not support managed agents, which would have to be sent there with their
keys. Here the agents stay on the host, and the sandbox calls them by name.
"""

from scripted_model import ScriptedModel
from smolagents import CodeAgent, tool

import sandfork.smolagents  # noqa: F401, makes executor_type="native" known

API_KEY = "key-of-the-weather-service"


@tool
def forecast(city: str) -> int:
    """Tomorrow's temperature.

    Args:
        city: The name of the city.
    """
    # Queries the service with the key. This runs in the process that has the key.
    assert API_KEY
    return {"Oslo": 4, "Rome": 19}[city]


meteorologist = CodeAgent(
    tools=[forecast],
    model=ScriptedModel("final_answer({city: forecast(city) for city in cities})"),
    name="meteorologist",
    description="Knows tomorrow's temperatures.",
    executor_type="native",
    verbosity_level=0,
)
manager = CodeAgent(
    tools=[],
    model=ScriptedModel(
        "cities = ['Oslo', 'Rome']\n"
        "report = meteorologist('Temperatures?', additional_args={'cities': cities})\n"
        "print(report)",
        "import ast\n"
        "temperatures = ast.literal_eval(report.splitlines()[-1])\n"
        "final_answer(max(temperatures, key=temperatures.get))",
    ),
    managed_agents=[meteorologist],
    additional_authorized_imports=["ast"],
    executor_type="native",
    executor_kwargs={"timeout_seconds": 10},
    verbosity_level=0,
)

with manager, meteorologist:
    print("Warmest city:", manager.run("Where is it warmest tomorrow?"))
    # The manager's code can look for the key anywhere in its sandbox.
    found = manager.python_executor(
        "[name for name in dir() if 'KEY' in name.upper()]"
    ).output
    print("Keys within reach of its code:", found)

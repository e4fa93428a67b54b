"""An agent that may call one web API through a tool of the host. Its code has no network.

pip install 'sandfork[smolagents]'
python examples/python/web_api.py
"""

import http.client
import json
import urllib.error
import urllib.request
from urllib.parse import urlencode

from smolagents import Tool

MAX_QUERY, MAX_ANSWER = 2000, 256 * 1024


class WebApi(Tool):
    """Gets JSON from the listed paths of one service. Its key stays on the host.

    The arguments come from the code of a model. They choose a listed path and
    parameters, never an address: code that chose addresses could reach the services
    of the host and of its network. The answer enters the model's context, where it can
    act as a prompt: list only a service whose content you trust.
    """

    name = "weather_api"
    inputs = {
        "path": {"type": "string", "description": "One of the paths."},
        "parameters": {"type": "object", "description": "Texts and numbers by name."},
    }
    output_type = "object"

    def __init__(self, base: str, key: str, paths: dict[str, str]) -> None:
        super().__init__()
        listed = "; ".join(f"{path}: {about}" for path, about in paths.items())
        self.description = f"Gets JSON from the weather service. Paths: {listed}"
        self.base, self.key, self.paths = base, key, frozenset(paths)
        # The usual opener also follows redirects, which could lead to any address,
        # takes a proxy from the environment, and opens files.
        self.opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
        ):
            self.opener.add_handler(handler)

    def forward(self, path: str, parameters: dict) -> object:
        if not isinstance(path, str) or path not in self.paths:
            raise ValueError(
                f"the API has these paths: {', '.join(sorted(self.paths))}"
            )
        if not isinstance(parameters, dict) or not all(
            isinstance(value, (str, int, float)) for value in parameters.values()
        ):
            raise ValueError("parameters are texts and numbers by name")
        query = urlencode(parameters)
        if len(query) > MAX_QUERY:
            raise ValueError(f"the parameters are longer than {MAX_QUERY} characters")
        request = urllib.request.Request(
            f"{self.base}{path}?{query}",
            headers={"Authorization": f"Bearer {self.key}"},
        )
        try:
            # `timeout` limits each read, and `tool_timeout` the whole call.
            with self.opener.open(request, timeout=5) as response:
                body = response.read(MAX_ANSWER + 1)
        except urllib.error.HTTPError as error:
            error.close()
            raise RuntimeError(f"the service answered {error.code}") from None
        except (OSError, http.client.HTTPException) as error:
            # The error's text could contain the address, or a part of the request.
            raise RuntimeError(
                f"the service gave no answer ({type(error).__name__})"
            ) from None
        if len(body) > MAX_ANSWER:
            raise RuntimeError(
                f"the answer is longer than {MAX_ANSWER} bytes: ask for less"
            )
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise RuntimeError("the answer is no JSON") from None


def main() -> None:
    from scripted_model import ScriptedModel
    from smolagents import CodeAgent
    from web_api_service import KEY, serving

    import sandfork.smolagents  # noqa: F401, makes executor_type="native" known

    with serving() as base:
        api = WebApi(base, KEY, {"/forecast": "tomorrow's temperature of a `city`"})
        model = ScriptedModel(
            # The code looks for a way around the tool, ...
            "from urllib.request import urlopen\nurlopen('http://127.0.0.1/forecast')",
            "weather_api('/admin', {})",
            # ... and then uses the tool.
            "def warm(city):\n"
            "    return weather_api('/forecast', {'city': city})['celsius']\n"
            "final_answer(max(['Oslo', 'Rome'], key=warm))",
        )
        # `tool_budget` bounds the calls of all steps, `tool_timeout` the time of each.
        limits = {"imports": "installed", "tool_budget": 20, "tool_timeout": 15}
        with CodeAgent(
            tools=[api],
            model=model,
            executor_type="native",
            executor_kwargs=limits,
            verbosity_level=0,
        ) as agent:
            print("Warmest city:", agent.run("Where is it warmest tomorrow?"))
            for step in agent.memory.steps[1:3]:
                failure = step.error.message.splitlines()[0].partition("due to: ")[2]
                print(f"step {step.step_number}:", failure)


if __name__ == "__main__":
    main()

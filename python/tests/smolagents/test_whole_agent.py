"""A whole agent program in the sandbox, with a model that stays on the host."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from smolagents import ChatMessage, Model
from smolagents.models import (
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    get_tool_json_schema,
)
from smolagents.monitoring import TokenUsage

from sandfork import Policy, Sandbox
from sandfork.smolagents import lend_model

KEY = "key-that-stays-on-the-host"
POLICY = Policy(
    python={"interpreter": sys.executable, "preload": ["smolagents"]},
    env={"pass": ["TEAM_TOKEN"]},
    limits={"wall": "60s", "cpu": "60s"},
)
PROGRAM = """
import os
from smolagents import CodeAgent, tool
from host_model import HostModel

@tool
def token() -> str:
    '''The token that may be in here.'''
    return os.environ["TEAM_TOKEN"]

def make(name, **options):
    return CodeAgent(model=HostModel("brain"), name=name, description=name, verbosity_level=-1, **options)

team = [make("adder", tools=[]), make("keeper", tools=[token])]
manager = make("manager", tools=[], managed_agents=team)
answer = manager.run("Solve it.")
steps = len(manager.memory.steps)
tokens = manager.monitor.get_total_token_counts().input_tokens
[str(answer), steps, tokens, sorted(os.environ)]
"""


class Brain(Model):
    """A model with a key, whose answers depend on the caller and the number of calls."""

    def __init__(self) -> None:
        super().__init__(model_id="brain")
        self.api_key = KEY
        self.codes = {
            "manager": [
                "total = adder('20 and 22')\nheld = keeper('the token')\nprint(total, held)",
                "final_answer(total[-2:] + ' ' + held[-5:])",
            ],
            "adder": ["final_answer(20 + 22)"],
            "keeper": ["final_answer(token())"],
        }

    def generate(self, messages: list[Any], **options: Any) -> ChatMessage:
        assert all(isinstance(message, ChatMessage) for message in messages)
        task = str(messages[1].content)
        who = "adder" if "20 and 22" in task else "keeper" if "the token" in task else "manager"
        code = self.codes[who].pop(0)
        return ChatMessage(
            role=MessageRole.ASSISTANT,
            content=f"<code>\n{code}\n</code>",
            token_usage=TokenUsage(input_tokens=100, output_tokens=10),
        )


def test_a_program_of_three_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_TOKEN", "t0ken")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (tmp_path / "agent.py").write_text(PROGRAM)
    with Sandbox(POLICY) as sbx:
        lend_model(sbx, Brain(), "brain")
        done = sbx.run_file(tmp_path / "agent.py")
        assert done.error is None, done.error
        answer, steps, tokens, names = done.value
        assert (answer, steps, tokens) == ("42 t0ken", 3, 200)
        assert "TEAM_TOKEN" in names
        assert "OPENAI_API_KEY" not in names
        assert KEY not in "".join(done.logs.stdout)


class Listening(Model):
    """A model that records its requests and follows a script."""

    def __init__(self) -> None:
        super().__init__(model_id="listening")
        self.heard: list[tuple[list[Any], dict[str, Any]]] = []
        self.answer: Any = ChatMessage(role=MessageRole.ASSISTANT, content="yes")

    def generate(self, messages: list[Any], **options: Any) -> ChatMessage:
        self.heard.append((messages, options))
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: ChatMessage = self.answer
        return answer


@pytest.fixture
def lent() -> Iterator[tuple[Sandbox, Listening]]:
    model = Listening()
    with Sandbox(POLICY) as sbx:
        lend_model(sbx, model)
        prepared = sbx.run(
            "import sandfork_host, smolagents, PIL.Image\nfrom host_model import HostModel\n"
            "from smolagents import ChatMessage, Tool\nmodel = HostModel()"
        )
        assert prepared.error is None, prepared.error
        yield sbx, model


def test_messages_are_sent_unchanged(lent: tuple[Sandbox, Listening]) -> None:
    sbx, model = lent
    done = sbx.run(
        "image = PIL.Image.new('RGB', (2, 1), 'red')\n"
        "content = [{'type': 'text', 'text': 'look'}, {'type': 'image', 'image': image}]\n"
        "said = model.generate([{'role': 'system', 'content': 'be brief'},\n"
        "    ChatMessage(role='user', content=content)], stop_sequences=['END'],\n"
        "    response_format={'type': 'json_object'}, temperature=2)\n"
        "[said.content, said.role == 'assistant', said.token_usage, said.tool_calls, model.model_id]"
    )
    assert done.value == ["yes", True, None, None, "host:model"]
    ((system, user), options) = model.heard[0]
    assert (system.role, system.content) == (MessageRole.SYSTEM, "be brief")
    text, image = user.content
    assert text == {"type": "text", "text": "look"}
    assert isinstance(image["image"], PIL.Image.Image)
    assert image["image"].getpixel((1, 0)) == (255, 0, 0)
    # The sandbox cannot configure the model.
    assert options == {"stop_sequences": ["END"], "response_format": {"type": "json_object"}}


def test_tool_calls_are_transferred(lent: tuple[Sandbox, Listening]) -> None:
    sbx, model = lent
    call = ChatMessageToolCall(ChatMessageToolCallFunction({"key": 1}, "look"), "call7", "function")
    model.answer = ChatMessage(role=MessageRole.ASSISTANT, content=None, tool_calls=[call])
    done = sbx.run(
        "@smolagents.tool\n"
        "def look(key: int) -> str:\n"
        "    '''Looks.\n\n    Args:\n        key: What for.\n    '''\n"
        "said = model.generate([{'role': 'user', 'content': '?'}], tools_to_call_from=[look])\n"
        "call = said.tool_calls[0]\n"
        "[said.content, call.id, call.type, call.function.name, call.function.arguments]"
    )
    assert done.error is None, done.error
    assert done.value == [None, "call7", "function", "look", {"key": 1}]
    (offered,) = model.heard[0][1]["tools_to_call_from"]
    assert get_tool_json_schema(offered)["function"]["name"] == "look"


@pytest.mark.parametrize(
    "messages",
    [
        "[{'role': 'user', 'content': [{'type': 'image', 'image': 'file:///etc/passwd'}]}]",
        "[{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': 'http://10.0.0.1'}}]}]",
        "[{'role': 'user', 'content': [object()]}]",
        "[{'role': 'root', 'content': 'x'}]",
        "[{'role': 'user', 'content': object()}]",
        "['x']",
        "None",
    ],
)
def test_invalid_message_does_not_reach_the_model(lent: tuple[Sandbox, Listening], messages: str) -> None:
    sbx, model = lent
    done = sbx.run(f"sandfork_host.model(messages={messages})")
    assert done.error is not None
    assert done.error.name in ("TypeError", "ValueError")
    assert model.heard == []


@pytest.mark.parametrize(
    "option", ["api_base='http://10.0.0.1'", "tools=[{'name': 1}]", "stop_sequences=[1]"]
)
def test_unknown_option_does_not_reach_the_model(lent: tuple[Sandbox, Listening], option: str) -> None:
    sbx, model = lent
    done = sbx.run(f"sandfork_host.model(messages=[], {option})")
    assert done.error is not None
    assert model.heard == []


def test_reason_of_a_model_failure_stays_on_the_host(
    lent: tuple[Sandbox, Listening], caplog: pytest.LogCaptureFixture
) -> None:
    sbx, model = lent
    model.answer = ConnectionError(f"401 for {KEY}")
    with caplog.at_level(logging.WARNING, "sandfork.smolagents"):
        done = sbx.run("model.generate([{'role': 'user', 'content': '?'}])")
    assert done.error is not None
    assert "the host's model failed (ConnectionError)" in done.error.value
    assert KEY not in done.error.value + done.error.traceback
    assert KEY in caplog.text


def test_budget_bounds_the_number_of_requests() -> None:
    model = Listening()
    with Sandbox(POLICY, tool_budget=2) as sbx:
        lend_model(sbx, model)
        done = sbx.run(
            "from host_model import HostModel\nmodel, n = HostModel(), 0\n"
            "while True:\n    model.generate([{'role': 'user', 'content': '?'}])\n    n += 1"
        )
        assert done.error is not None
        assert "budget" in done.error.value
    assert len(model.heard) == 2


def test_agent_environment_is_not_modified() -> None:
    with Sandbox(POLICY) as sbx:
        place = f"{sys.prefix}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        assert os.path.isdir(place)
        done = sbx.run(f"open({place + '/planted.py'!r}, 'w')")
        assert done.error is not None
        assert done.error.name in ("OSError", "PermissionError")

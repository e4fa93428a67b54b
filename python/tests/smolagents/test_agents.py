"""Agents at work: steps, runs, arguments, managed agents, callbacks, planning, streaming."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pytest
from smolagents import ActionStep, ChatMessage, CodeAgent, Tool, tool
from smolagents.agent_types import AgentImage, AgentText
from smolagents.memory import PlanningStep
from smolagents.models import ChatMessageStreamDelta, MessageRole
from smolagents.utils import AgentExecutionError

from .support import Script, code_agent

DATA = ["numpy", "pandas", "PIL", "PIL.*", "numpy.*"]


@tool
def double(n: int) -> int:
    """Doubles a number.

    Args:
        n: The number.
    """
    return 2 * n


def action_steps(agent: CodeAgent) -> list[ActionStep]:
    return [step for step in agent.memory.steps if isinstance(step, ActionStep)]


def test_an_agent_solves_its_task() -> None:
    with code_agent("x = double(20)\nprint('have', x)", "final_answer(x + 2)", tools=[double]) as agent:
        assert agent.run("The answer?") == 42
        first, second = action_steps(agent)
        assert first.observations == "Execution logs:\nhave 40\nLast output from code snippet:\nNone"
        assert second.is_final_answer


def test_model_sees_value_errors_and_output() -> None:
    with code_agent("x = 3", "print('about to fail')\n1 / 0", "import os", "final_answer('ok')") as agent:
        assert agent.run("?") == "ok"
        assert "Last output from code snippet:\n3" in agent.model.asked[1]
        assert "Execution logs:\nabout to fail" in agent.model.asked[2]
        assert "failed at line '1 / 0' due to: ZeroDivisionError" in agent.model.asked[2]
        assert "Import of os is not allowed. Authorized imports are: [" in agent.model.asked[3]
        errors = [step.error for step in action_steps(agent)]
        assert [type(error) for error in errors[1:3]] == [AgentExecutionError] * 2
        assert errors[0] is None
        assert errors[3] is None


def test_unauthorized_import_shows_the_advice() -> None:
    with code_agent("import os", "final_answer(1)", verbosity_level=1) as agent:
        console = agent.logger.console
        with console.capture() as captured:
            agent.run("?")
    assert "additional_authorized_imports" in captured.get().replace("\n", "")


@pytest.mark.parametrize("reset", [True, False])
def test_state_is_kept_from_run_to_run(reset: bool) -> None:
    """`reset` clears the agent's memory. Variables stay, as with the local executor."""
    with code_agent("import math\nx = math.floor(5.5)\nfinal_answer(x)", "final_answer(x + 1)") as agent:
        assert agent.run("one") == 5
        assert agent.run("two", reset=reset) == 6


def test_data_as_additional_arguments() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", None]}, index=pd.Index([5, 6, 7], name="i"))
    array = np.arange(6, dtype="f4").reshape(2, 3)
    image = PIL.Image.new("RGB", (4, 2), "red")
    with code_agent(
        "import pandas, numpy\n"
        "assert isinstance(frame, pandas.DataFrame) and isinstance(array, numpy.ndarray)\n"
        "final_answer([int(frame.a.sum()), array.shape, image.size, wrapped.getpixel((0, 0)), text])",
        additional_authorized_imports=DATA,
    ) as agent:
        arguments = {
            "frame": frame,
            "array": array,
            "image": image,
            "wrapped": AgentImage(image),
            "text": AgentText("hi"),
        }
        assert agent.run("?", additional_args=arguments) == [6, (2, 3), (4, 2), (255, 0, 0), "hi"]


def test_data_as_answers_and_results() -> None:
    class Painter(Tool):
        name = "paint"
        description = "Paints."
        inputs = {"color": {"type": "string", "description": "The color."}}
        output_type = "image"

        def forward(self, color: str) -> Any:
            return AgentImage(PIL.Image.new("RGB", (3, 3), color))

    code = "image = paint('blue')\nframe = pandas.DataFrame({'a': [image.size[0]]})"
    with code_agent(
        f"import pandas\n{code}\nframe",
        "final_answer(image.rotate(90))",
        tools=[Painter()],
        additional_authorized_imports=DATA,
    ) as agent:
        answer = agent.run("?")
        assert isinstance(answer, AgentImage)
        assert answer.to_raw().getpixel((1, 1)) == (0, 0, 255)
        (output, _) = (step.action_output for step in action_steps(agent))
        pd.testing.assert_frame_equal(output, pd.DataFrame({"a": [3]}))


def aide(*codes: str, **options: Any) -> CodeAgent:
    return code_agent(*codes, name="aide", description="Answers questions.", **options)


def test_a_managed_agent_is_called_from_code() -> None:
    with aide("final_answer(len(extra) + int(n))") as managed:
        task = "report = aide('How much?', additional_args={'extra': [1, 2], 'n': 40})\nprint(report)"
        with code_agent(task, "final_answer(report[-2:])", managed_agents=[managed]) as agent:
            assert agent.run("?") == "42"
            assert "Here is the final answer from your managed agent 'aide'" in agent.model.asked[1]
            assert "How much?" in managed.model.asked[0]


def test_a_managed_agent_that_fails_is_an_error_of_the_code() -> None:
    class Broken(Script):
        def generate(self, messages: list[Any], **kwargs: Any) -> ChatMessage:
            raise ConnectionError("no network")

    with aide() as managed:
        managed.model = Broken()
        with code_agent("aide('?')", "final_answer('went on')", managed_agents=[managed]) as agent:
            assert agent.run("?") == "went on"
            assert "AgentGenerationError" in agent.model.asked[1]


def test_shared_executor_is_reported() -> None:
    managed = aide("final_answer(1)")
    managed.cleanup()
    with code_agent("aide('?')", "final_answer('went on')", managed_agents=[managed]) as agent:
        managed.python_executor = agent.python_executor
        assert agent.run("?") == "went on"
        assert "give each agent an executor of its own" in agent.model.asked[1]


def test_step_callbacks_and_final_answer_checks() -> None:
    seen: list[int] = []

    def check(answer: Any, memory: Any, agent: CodeAgent) -> bool:
        return answer == 2

    with code_agent(
        "final_answer(1)",
        "final_answer(2)",
        step_callbacks=[lambda step, agent: seen.append(step.step_number)],
        final_answer_checks=[check],
    ) as agent:
        assert agent.run("?") == 2
        assert seen == [1, 2]


def test_planning() -> None:
    with code_agent("x = 1", "final_answer(x)", planning_interval=5) as agent:
        agent.model.codes.insert(0, "the plan")
        assert agent.run("?") == 1
        assert isinstance(agent.memory.steps[1], PlanningStep)


def test_streaming() -> None:
    class Streamed(Script):
        def generate_stream(self, messages: list[Any], **kwargs: Any) -> Any:
            content = str(self.generate(messages).content)
            yield ChatMessageStreamDelta(content=content[:9])
            yield ChatMessageStreamDelta(content=content[9:])

    agent = CodeAgent(
        tools=[double],
        model=Streamed("x = double(4)", "final_answer(x)"),
        executor_type="native",
        stream_outputs=True,
        verbosity_level=-1,
    )
    with agent:
        steps = list(agent.run("?", stream=True))
    assert sum(isinstance(step, ChatMessageStreamDelta) for step in steps) == 4
    assert steps[-1].output == 8


def test_full_results_and_max_steps() -> None:
    with code_agent("x = 1", "final", max_steps=1) as agent:
        result = agent.run("?", return_full_result=True)
        assert result.state == "max_steps_error"
        assert result.steps[1]["action_output"] == 1


def test_an_interrupt_ends_the_run_after_the_step() -> None:
    with code_agent("x = 1", "x = 2") as agent:

        def stop(step: Any, agent: CodeAgent) -> None:
            agent.interrupt()

        agent.step_callbacks.register(ActionStep, stop)
        with pytest.raises(Exception, match="Agent interrupted"):
            agent.run("?")


def test_agent_continues_after_its_session_was_killed() -> None:
    with code_agent(
        "import os\nkept = double(1)\nos.kill(os.getpid(), 9)",
        "final_answer(double(given))",
        tools=[double],
        additional_authorized_imports=["os"],
    ) as agent:
        assert agent.run("?", additional_args={"given": 21}) == 42
        assert "the tools and the variables given are there again" in agent.model.asked[1]


def test_structured_outputs() -> None:
    class Structured(Script):
        def generate(self, messages: list[Any], **kwargs: Any) -> ChatMessage:
            return ChatMessage(
                role=MessageRole.ASSISTANT, content='{"thought": "", "code": "final_answer(3)"}'
            )

    agent = CodeAgent(
        tools=[],
        model=Structured(),
        executor_type="native",
        use_structured_outputs_internally=True,
        verbosity_level=-1,
    )
    with agent:
        assert agent.run("?") == 3


def test_agent_can_be_copied_like_others() -> None:
    """A `rich` console cannot be copied with any executor; everything else can."""
    with code_agent("x = 1\nfinal_answer(x)", "final_answer(x)", "final_answer(7)") as agent:
        agent.run("?", additional_args={"given": 7})
        agent.logger = agent.monitor.logger = agent.python_executor.logger = None
        twin = copy.deepcopy(agent)
        assert twin.python_executor is not agent.python_executor
        assert twin.python_executor("given").output == 7
        assert agent.python_executor("x").output == 1
        twin.cleanup()

"""Executors used from several threads, as a `ToolCallingAgent` uses its managed agents."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from smolagents import ChatMessage, Model, ToolCallingAgent
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

from sandfork.smolagents import CodeError, NativeExecutor

from .support import code_agent


class Caller(Model):
    """A model that calls these tools in parallel, then answers with its observations."""

    def __init__(self, calls: list[tuple[str, dict[str, Any]]]) -> None:
        super().__init__(model_id="caller")
        self.calls = calls

    def generate(self, messages: list[Any], **kwargs: Any) -> ChatMessage:
        calls, self.calls = self.calls, []
        if not calls:
            seen = str(messages[-1].content)
            calls = [("final_answer", {"answer": seen})]
        return ChatMessage(
            role=MessageRole.ASSISTANT,
            content=None,
            tool_calls=[
                ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), f"call{n}", "function")
                for n, (name, arguments) in enumerate(calls)
            ],
        )


def test_managed_agents_of_a_tool_calling_agent_run_at_once() -> None:
    together = threading.Barrier(3, timeout=60)

    def meet() -> int:
        return together.wait()

    team = [
        code_agent(
            f"meet()\nfinal_answer({n} * 111)",
            name=f"aide{n}",
            description="Aids.",
            executor_kwargs={"additional_functions": {"meet": meet}},
        )
        for n in range(3)
    ]
    agent = ToolCallingAgent(
        tools=[],
        model=Caller([(f"aide{n}", {"task": "?"}) for n in range(3)]),
        managed_agents=team,
        verbosity_level=-1,
    )
    answer = agent.run("?")
    assert all(f"{n * 111}" in answer for n in range(3))
    for each in team:
        each.cleanup()


def test_shared_executor_serializes_its_callers(executor: NativeExecutor) -> None:
    inside = threading.Semaphore(1)

    def alone(n: int) -> int:
        assert inside.acquire(blocking=False), "two pieces of code ran at once"
        threading.Event().wait(0.01)
        inside.release()
        return n

    executor.send_tools({"alone": alone})

    def step(n: int) -> None:
        done = executor(f"print({n})\nalone({n})")
        assert (done.output, done.logs) == (n, f"{n}\n")
        try:
            executor(f"print('failing', {n})\n1 / 0")
        except CodeError:
            # The output of this thread, not of others.
            assert str(executor.state["_print_outputs"]) == f"failing {n}\n"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(step, range(40)))


def test_code_calls_tools_from_its_threads() -> None:
    executor = NativeExecutor(["concurrent.futures"])
    executor.send_tools({"square": lambda n: n * n})
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(4) as pool:\n"
        "    got = list(pool.map(square, range(50)))\n"
        "got"
    )
    assert executor(code).output == [n * n for n in range(50)]
    executor.cleanup()

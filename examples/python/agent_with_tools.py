"""A smolagents agent whose code runs in a sandbox, while its tools run here.

pip install 'sandfork[smolagents]'
python examples/python/agent_with_tools.py
"""

import sqlite3

from scripted_model import ScriptedModel
from smolagents import CodeAgent, Tool

from sandfork.smolagents import NativeExecutor


class Query(Tool):
    """Holds a connection that stays out of every sandbox: the guest sends SQL and receives rows."""

    name = "query"
    description = "Runs SQL on the table orders(customer, amount) and returns its rows."
    inputs = {"sql": {"type": "string", "description": "One SELECT statement."}}
    output_type = "array"

    def __init__(self) -> None:
        super().__init__()
        self.database = sqlite3.connect(":memory:", check_same_thread=False)
        self.database.execute("create table orders (customer, amount)")
        self.database.executemany(
            "insert into orders values (?, ?)", [("Ada", 30), ("Bob", 12), ("Ada", 20)]
        )
        # The sandbox cannot restrict what a tool does, so the tool checks.
        self.database.execute("pragma query_only = on")

    def forward(self, sql: str) -> list:
        return self.database.execute(sql).fetchall()


model = ScriptedModel(
    # It looks at the data, ...
    "rows = query('select customer, amount from orders')\nprint(rows)",
    # ... tries something that its sandbox refuses, and receives the error, ...
    "open('/etc/shadow').read()",
    # ... and works with the variables of its earlier steps.
    "totals = {}\n"
    "for customer, amount in rows:\n"
    "    totals[customer] = totals.get(customer, 0) + amount\n"
    "final_answer(max(totals, key=totals.get))",
)
executor = NativeExecutor(policy={"limits": {"memory": "256MiB"}}, timeout_seconds=10)

with CodeAgent(
    tools=[Query()], model=model, executor=executor, verbosity_level=0
) as agent:
    print("Best customer:", agent.run("Who is our best customer?"))
    for step in agent.memory.steps[1:]:
        print(
            f"step {step.step_number}:", step.error or step.observations.splitlines()[1]
        )

"""Data analysis: a frame of pandas goes in, a smaller one and a chart come out.

    python examples/python/analysis.py [--environment PYTHON] [--rows N] [--chart FILE]

Needs pandas here, and pandas and matplotlib in the environment whose packages the sandbox gets: that of an
interpreter, or a virtual environment; by default the one that runs this. It is mounted read-only, and
nothing is installed into it.

The columns of a frame are passed in shared memory, not through a socket: this side writes them once, and the
guest maps them.
"""

import argparse
import sys
import time
from pathlib import Path

from sandfork import Execution, Policy, Sandbox

# Code that an analyst, or a model, would write.
SUMMARY = """
amounts = sales.groupby("city", observed=True)["amount"]
by_city = amounts.agg(["count", "sum", "mean"]).round(2)
by_city
"""
CHART = """
import matplotlib.pyplot as plt

by_city["sum"].plot.bar(title="Sales by city", ylabel="amount")
plt.tight_layout()
"""


def sales(rows: int):
    """Synthetic data, the same on each run."""
    import numpy as np
    import pandas as pd

    random = np.random.default_rng(seed=7)
    cities = ["Oslo", "Lima", "Cairo", "Osaka"]
    return pd.DataFrame(
        {
            "city": pd.Categorical.from_codes(random.integers(0, 4, rows), cities),
            "amount": random.gamma(2.0, 30.0, rows).round(2),
            "discount": random.random(rows),
        }
    )


def checked(execution: Execution) -> Execution:
    """Returns a successful execution, or ends this program."""
    if execution.error is not None:
        raise SystemExit(execution.error.traceback or execution.error.value)
    return execution


def missing_from(sandbox: Sandbox) -> list[str]:
    """The required packages that the sandbox's environment lacks."""
    look = "[name for name in wanted if importlib.util.find_spec(name) is None]"
    wanted = {"wanted": ["pandas", "matplotlib"]}
    return checked(
        sandbox.run(f"import importlib.util\n{look}", variables=wanted)
    ).value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--chart", type=Path, default=Path("sales.png"))
    options = parser.parse_args()

    policy = Policy(
        # Loads numpy and pandas once, for all sessions under this policy.
        extends="data-science",
        python={"interpreter": options.environment},
    )
    with Sandbox(policy) as sandbox:
        if missing := missing_from(sandbox):
            environment = sandbox.info.python.environment
            raise SystemExit(
                f"{environment} has no {' and no '.join(missing)}: install what is missing "
                "there, or name another environment with --environment"
            )
        try:
            frame = sales(options.rows)
        except ImportError as error:
            remedy = "run this with an interpreter that has pandas"
            raise SystemExit(f"{error}: {remedy}") from None

        began = time.perf_counter()
        sandbox.set(sales=frame)
        took = time.perf_counter() - began
        megabytes = frame.memory_usage().sum() / 1e6
        print(f"{megabytes:.1f} MB went in, in {1e3 * took:.0f} ms")

        summary = checked(sandbox.run(SUMMARY)).value
        # The value is a pandas frame on this side too.
        print(summary)
        assert summary["count"].sum() == len(frame)

        chart = checked(sandbox.run(CHART)).results[-1]
        options.chart.write_bytes(chart.png_bytes or b"")
        print(f"chart: {options.chart.name}, {chart.formats()}")


if __name__ == "__main__":
    main()

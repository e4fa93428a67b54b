"""Charts and notebook features in a real session."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import sandfork
from sandfork import Sandbox

for _name in ("plotly", "altair", "bokeh", "matplotlib", "pandas"):
    pytest.importorskip(_name)

PLOTLY = "application/vnd.plotly.v1+json"
VEGA = "application/vnd.vegalite.v6+json"
BOKEH = "application/vnd.sandfork.bokeh.v3+json"


@pytest.fixture(scope="module")
def sbx(real: None) -> Iterator[Sandbox]:
    policy = sandfork.Policy(python={"interpreter": sys.executable}, limits={"memory": "2GiB"})
    with Sandbox(policy, timeout=120) as sandbox:
        yield sandbox


CHARTS = [
    (PLOTLY, True, "import plotly.express as px\nf = px.bar(y=[1, 2])\nf"),
    (PLOTLY, False, "f.show()"),
    (PLOTLY, False, "import plotly.io\nplotly.io.show(f)"),
    (VEGA, True, "import altair, pandas\nc = altair.Chart(pandas.DataFrame({'a': [1]})).mark_bar()\nc"),
    (VEGA, False, "c.show()"),
    (BOKEH, False, "from bokeh.plotting import figure, output_notebook, show\np = figure()\nshow(p)"),
    (BOKEH, True, "output_notebook()\np"),
    (
        "image/png",
        False,
        "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1])\nfig.show()",
    ),
    ("image/png", False, "%matplotlib inline\nplt.plot([1])\nplt.show()"),
]


@pytest.mark.parametrize(("media_type", "main", "code"), CHARTS)
def test_a_chart_is_shown_once_as_in_a_notebook(sbx: Sandbox, media_type: str, main: bool, code: str) -> None:
    execution = sbx.run(code)
    assert execution.error is None
    (shown,) = execution.results
    assert shown.is_main_result is main
    assert shown.raw(media_type)
    assert execution.logs.stdout == []


def test_chart_data_of_the_guest_is_drawn_by_the_caller_s_library(
    sbx: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = sbx.run("import plotly.express as px\npx.bar(y=[1, 2])").results
    assert "<iframe" not in shown._repr_html_()
    monkeypatch.setattr(sandfork.display, "scripts", True)
    assert len(shown._repr_html_()) > 1_000_000


def test_notebook_idioms_work_or_print_a_message(sbx: Sandbox) -> None:
    execution = sbx.run("!pip install -q nowhere-to-be-found pandas\nimport pandas\n1")
    assert execution.value == 1
    assert "nowhere-to-be-found cannot be installed here" in "".join(execution.logs.stdout)
    assert "already satisfied: pandas" in "".join(execution.logs.stdout)
    assert sbx.run("!echo printed").logs.stdout == ["printed\n"]
    assert "Wall time" in "".join(sbx.run("%%time\nsum(range(10))").logs.stdout)
    assert "Signature: len" in "".join(sbx.run("?len").logs.stdout)
    quiet = sbx.run("[1, 2];")
    assert (quiet.value, quiet.results, quiet.text) == ([1, 2], [], None)
    alone = sandfork.run("%matplotlib inline\n6 * 7")
    assert alone.value == 42

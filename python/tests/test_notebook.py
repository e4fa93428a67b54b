"""Results in a notebook: charts, tables and text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest

import sandfork
from sandfork import Result, _charts, _html

from .test_executions import ended

PLOTLY = "application/vnd.plotly.v1+json"
ATTACK = '{"data": ["</script><script>alert(1)</script>", "\\"onload=alert(1)"]}'


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_charts, "_scripts", lambda name: (f"/* {name} */",))
    sandfork.display.scripts = True
    yield
    sandfork.display.scripts = False


def frames(shown: str) -> tuple[str, str]:
    """The documents of both frames of a chart."""
    found = re.fullmatch(
        r'<iframe sandbox="allow-scripts" srcdoc="([^"<>]*)" onload="[^"<>]*" style="[^"<>]*"></iframe>',
        shown,
    )
    assert found is not None
    outer = html.unescape(found[1])
    inner = re.search(r'<iframe sandbox="allow-scripts" srcdoc="([^"<>]*)"', outer)
    assert inner is not None
    return outer, html.unescape(inner[1])


@pytest.mark.parametrize(
    ("media_type", "name"),
    [
        (PLOTLY, "plotly"),
        ("application/vnd.vegalite.v6+json", "vegalite"),
        ("application/vnd.sandfork.bokeh.v3+json", "bokeh"),
    ],
)
def test_a_chart_without_the_opt_in_is_a_sentence(media_type: str, name: str) -> None:
    shown = Result({media_type: ATTACK, "text/plain": "<Figure>"})._repr_html_()
    assert shown == f"<p><em>a chart of {name}: set sandfork.display.scripts = True to draw it here</em></p>"


@pytest.mark.usefixtures("scripts")
def test_chart_is_drawn_by_the_callers_scripts_without_network() -> None:
    outer, inner = frames(Result({PLOTLY: ATTACK})._repr_html_())
    assert "<script" not in outer.partition("<iframe")[0]
    for document in (outer, inner):
        policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', document)
        assert policy is not None
        rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
        assert rules["default-src"] == rules["frame-src"] == rules["form-action"] == "'none'"
        assert re.fullmatch(r"'nonce-[\w-]{20,}'", rules["script-src"])
    # All scripts are the caller's; the guest's data is in base64.
    assert "alert" not in inner
    assert "/* plotly */" in inner
    assert len(re.findall("<script", inner)) == 2
    other = Result({PLOTLY: ATTACK})._repr_html_()
    assert re.findall("nonce-([^']*)'", other) != re.findall("nonce-([^']*)'", outer)


def test_chart_names_its_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_charts, "_scripts", lambda name: None)
    monkeypatch.setattr(sandfork.display, "scripts", True)
    shown = Result({"application/vnd.vegalite.v5+json": "{}"})._repr_html_()
    assert "install vl-convert-python in this Python" in shown
    assert "<iframe" not in shown


def test_a_picture_of_a_chart_needs_no_scripts() -> None:
    shown = Result({"application/vnd.vegalite.v6+json": "{}", "image/svg+xml": "<svg/>"})._repr_html_()
    assert shown.startswith('<img src="data:image/svg+xml;base64,')


def test_the_libraries_scripts_do_not_end_their_element() -> None:
    found = 0
    for name in ("plotly", "bokeh"):
        for script in _charts._scripts(name) or ():
            found += 1
            assert not re.search("<(/script|!--)", script, re.IGNORECASE)
    if not found:
        pytest.skip("neither plotly nor bokeh is installed")


def test_text_is_monospaced_and_html_is_sized_to_its_content() -> None:
    assert "font-family:monospace" in Result({"text/plain": "a  b"})._repr_html_()
    shown = Result({"text/html": "<table><tr><td>1</table>", "text/plain": "1"})._repr_html_()
    assert "scrollHeight" in shown
    assert "allow-scripts" not in shown


def test_an_execution_shows_a_bounded_amount_of_html(monkeypatch: pytest.MonkeyPatch) -> None:
    rebuilt = []
    monkeypatch.setattr(_html, "LARGEST_HTML", 100)
    monkeypatch.setattr(_html, "inert", lambda html: rebuilt.append(len(html)) or html)
    shown = [Result({"text/plain": f"text {size}", "text/html": "x" * size}) for size in (40, 101, 60, 1)]
    page = ended(shown=shown)._repr_html_()
    # The second result is too long and the last exceeds the rest of the page's limit, so both show text.
    assert rebuilt == [40, 60]
    assert [f"text {size}</pre>" in page for size in (40, 101, 60, 1)] == [False, True, False, True]
    assert _html.result(Result({"text/html": "<td>" * 1_000_000})).startswith("<pre")


def test_a_result_prints_a_bounded_text() -> None:
    assert repr(Result({"text/plain": "x" * 60_000})) == f"Result({'x' * 60_000})"
    long = repr(Result({"text/plain": "\1" * 1_000_000}))
    assert long.count("\\x01") < 1 << 16
    assert "characters left out" in long


def test_source_is_shown_if_the_text_only_names_the_object() -> None:
    named = {"text/plain": "<IPython.core.display.Markdown object>", "text/markdown": "# <Findings>"}
    for forms, text in (
        (named, "# <Findings>"),
        ({"text/plain": "<C object at 0x7f12>", "text/latex": "$x$", "application/json": "[1]"}, "$x$"),
        ({"application/json": '{"a": 1}'}, '{"a": 1}'),
        ({"text/plain": "x**2", "text/latex": "$x^2$"}, "x**2"),
        ({"text/plain": "<C object>"}, "<C object>"),
    ):
        shown = Result(forms)
        assert ended(shown=(shown,)).to_text() == text
        assert f">{html.escape(text)}</pre>" in shown._repr_html_()
    assert ended(shown=(Result(named, is_main_result=True),)).to_text() == "[value] # <Findings>"

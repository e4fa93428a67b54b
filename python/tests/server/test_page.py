"""The page at `/`."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from . import browser
from .browser import Browser
from .support import Server


@pytest.fixture(scope="module")
def page(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The page, in a browser."""
    program = browser.find()
    if program is None:
        pytest.skip("no Chromium: install the package `chromium`")
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    opened.go(server.url)
    yield opened
    opened.close()


def _run(page: Browser, code: str) -> str:
    page.value(f"at('code').value = {code!r}; at('state').textContent = ''; at('playground').requestSubmit()")
    page.wait_for("!at('run').disabled && at('state').textContent !== 'running'")
    return str(page.value("at('result').innerText"))


def test_nothing_is_loaded_from_other_sites(server: Server) -> None:
    for path in "/", "/page.js", "/page.css":
        answer = server.ask("GET", path)
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert policy.startswith(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
        )
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        text = answer.body.decode()
        assert "http://" not in text
        assert "https://" not in text
        assert " style=" not in text
        assert "innerHTML" not in text


def test_cell_shows_its_output_and_value(page: Browser) -> None:
    assert _run(page, "x = 6\nprint('printed')\nx * 7").split() == ["printed", "42"]
    # The session keeps its variables, and is listed.
    assert _run(page, "x + 1").strip() == "7"
    page.wait_for("at('sessions').rows.length === 1")


def test_an_exception_and_a_refusal_are_explained(page: Browser) -> None:
    shown = _run(page, "open('/etc/shadow')")
    assert "FileNotFoundError" in shown
    assert "--set filesystem.read=/etc/shadow" in shown
    page.wait_for("at('failures').innerText.includes('--set filesystem.read=/etc/shadow')")


def test_guest_output_is_shown_as_text(page: Browser) -> None:
    markup = "<img src=x onerror=document.title=1><script>document.title=2</script>"
    assert markup in _run(page, f"print({markup!r})")
    assert page.value("document.title") == "Sandfork"
    assert page.value("document.querySelectorAll('#result img, #result script').length") == 0


def test_a_session_that_ends_is_followed_by_another(page: Browser) -> None:
    _run(page, "import os; os._exit(3)")
    assert "the next cell opens a new one" in page.value("at('state').textContent")
    assert _run(page, "'new'").strip() == '"new"'


def test_rejected_cell_keeps_the_session(page: Browser) -> None:
    _run(page, "kept = 6")
    # The network fails once.
    page.value(
        "{ const own = fetch; window.fetch = (path, request) => path.endsWith('/cells')"
        " ? (window.fetch = own, Promise.reject(new TypeError('gone'))) : own(path, request); }"
    )
    _run(page, "1")
    assert _run(page, "kept").strip() == "6"


def _click(page: Browser, row: int, button: str) -> None:
    buttons = f"[...at('sessions').rows[{row}].querySelectorAll('button')]"
    page.value(f"{buttons}.find((one) => one.textContent === {button!r}).click()")


def _playground_row(page: Browser) -> int:
    rows = "[...at('sessions').rows].map((row) => row.innerText.includes('in the playground'))"
    page.wait_for(f"{rows}.filter((is) => is).length === 1")
    return int(str(page.value(f"{rows}.indexOf(true)")))


def test_page_forks_and_closes_listed_sessions(page: Browser) -> None:
    _run(page, "x = [1]")
    first = _playground_row(page)
    _click(page, first, "Fork")
    page.wait_for(
        f"at('sessions').rows.length === 2 && !at('sessions').rows[{first}].innerText.includes('playground')"
    )
    assert _run(page, "x.append(2); x").strip() == "[1,2]"
    _click(page, first, "Use")
    page.wait_for(f"at('sessions').rows[{first}].innerText.includes('playground')")
    assert _run(page, "x").strip() == "[1]"


def test_sessions_are_closed_from_the_list(page: Browser) -> None:
    for left in (1, 0):
        _click(page, 0, "Close")
        page.wait_for(f"at('sessions').rows.length === {left}")


def test_page_reports_a_missing_token(start, page: Browser, tmp_path: pathlib.Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-that-is-long-enough-for-this\n")
    tokens.chmod(0o600)
    other = start("--token-file", str(tokens))
    page.go(other.url)
    page.wait_for("!at('trouble').hidden && at('trouble').textContent.includes('token')")
    page.value("at('token').value = 'a-token-that-is-long-enough-for-this'; at('access').requestSubmit()")
    page.wait_for("at('trouble').hidden")


def test_activity_counts_runs_by_status(server: Server) -> None:
    before = server.ask("GET", "/v1/activity").json["ended"].get("exception", 0)
    server.run("1 / 0")
    activity = server.ask("GET", "/v1/activity").json
    assert activity["ended"]["exception"] == before + 1
    assert activity["wall_ms"]["p50"] <= activity["wall_ms"]["p99"]
    assert activity["failures"][-1]["error"] == "ZeroDivisionError: division by zero"

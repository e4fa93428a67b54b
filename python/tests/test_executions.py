"""The `Execution` that a caller gets for a cell."""

from __future__ import annotations

import base64
import copy
import html
import json
import pickle
import re
import time
from dataclasses import replace

import pytest

import sandfork
from sandfork import Execution, Logs, Result, Sandbox, _html, _reports, _result, _text, _values

from .support.fake import ENFORCED, LIMITS, POLICY, USAGE, FakeSupervisor

PNG = b"\x89PNG\r\n\x1a\n"


def ended(
    *, shown=(), stdout=(), stderr=(), wall=None, value=None, buffers=(), session="live", **fields
) -> Execution:
    inner = {"status": "ok", "exit_code": 0, "limit": None, "error": None, "denied": [], **fields}
    told = {**inner, "usage": USAGE}
    header = {"outcome": told, "value": value, "session": session, "execution_count": 3, "final": False}
    logs = Logs(list(stdout), list(stderr))
    info = _reports.session_info({"enforced": ENFORCED, "policy": POLICY, "limits": LIMITS})
    return Execution(header, logs, list(shown), info, buffers=buffers, wall=wall)


def test_value_is_the_main_result_without_a_rich_display() -> None:
    execution = ended(value=42)
    assert execution.text == "42"
    (main,) = execution.results
    assert main.is_main_result
    assert main.formats() == ["text"]
    assert (main["text"], main["text/plain"], main.html) == ("42", "42", None)
    assert ended().text is None
    assert ended().results == []


def test_undisplayed_value_is_not_a_result() -> None:
    execution = ended(value=42)
    execution._header["quiet"] = True
    assert (execution.value, execution.results, execution.text) == (42, [], None)
    assert execution.to_text() == ""


def test_a_model_sees_output_and_value_or_error() -> None:
    assert ended(value=42).to_text() == "[value] 42"
    assert ended(stdout=["a", "b"], stderr=["c"], value=1).to_text() == "ab\n[stderr]\nc\n[value] 1"
    assert ended(stdout=["a\n"]).to_text() == "a\n"
    assert ended().to_text() == ""
    shown = [Result({"image/png": PNG}), Result({"text/plain": "side"})]
    assert ended(shown=shown).to_text() == "[shown: png]\nside"
    trace = "Traceback (most recent call last):\nValueError: no\n"
    error = {"name": "ValueError", "message": "no", "traceback": trace}
    assert ended(status="exception", exit_code=1, error=error).to_text() == trace.rstrip("\n")
    # The message that Python prints is not always that of the exception.
    trace = "Traceback (most recent call last):\nSyntaxError: invalid syntax"
    error = {"name": "SyntaxError", "message": "invalid syntax (<cell 1>, line 1)", "traceback": trace}
    assert ended(status="exception", exit_code=1, error=error).to_text() == trace
    hit = {"name": "limits.wall", "by": "deadline"}
    late = ended(
        status="timeout", exit_code=124, limit=hit, wall=0.5, session="ended", stdout=["x"]
    ).to_text()
    assert late.splitlines() == [
        "x",
        "Timeout: the cell reached its limit of 0.5 s on the clock (limits.wall)",
        "[the session has ended: variables, imports and files are lost]",
    ]


@pytest.mark.parametrize("length", [200, 201, 1000, 50_000])
def test_a_long_text_loses_its_middle_and_its_output_first(length: int) -> None:
    trace = "first\n" + "t" * 400 + "\nValueError: no"
    error = {"name": "ValueError", "message": "no", "traceback": trace}
    for output in ("", "<" + "o" * 100_000 + ">"):
        text = ended(stdout=[output], status="exception", exit_code=1, error=error).to_text(length)
        assert len(text) <= length
        assert text.endswith("\nValueError: no")
        assert text.startswith(output[:1] or "first")
        assert ("characters left out" in text) is (len(output) + len(trace) > length)
    for wrong in (199, 1.5, None, True):
        with pytest.raises(sandfork.RequestError, match="max_length is"):
            ended().to_text(wrong)  # type: ignore[arg-type]


def test_a_dict_has_the_data_of_the_json() -> None:
    execution = ended(value=[1, {"type": "tuple", "items": [2]}], stdout=["a", "b"], stderr=["c"])
    assert execution.to_dict() == json.loads(execution.to_json())
    short = {"status": "ok", "exit_code": 0, "stdout": "ab", "stderr": "c", "value": [1, [2]]}
    assert execution.to_dict(compact=True) == {**short, "wall_ms": USAGE["wall_ms"]}
    error = {"name": "ValueError", "message": "no", "traceback": "..."}
    failed = ended(status="exception", exit_code=1, error=error).to_dict(compact=True)
    assert failed["error"] == {"name": "ValueError", "message": "no"}
    late = ended(status="timeout", exit_code=124, limit={"name": "limits.wall", "by": "deadline"})
    assert late.to_dict(compact=True)["limit"] == "limits.wall"


@pytest.mark.parametrize(
    "tree",
    [
        {"type": "float", "text": "nan"},
        {"type": "int", "hex": "f" * 10_000},
        {"type": "dict", "items": [[1, {"type": "int", "hex": "f" * 10_000}]]},
        {"type": "dict", "items": [["a", {"type": "set", "items": [1]}]]},
        {"type": "opaque", "name": "x", "repr": "\ud800"},
        {"type": "broken"},
    ],
)
def test_a_dict_can_always_be_written_as_json(tree: object) -> None:
    execution = ended(value=tree)
    for compact in (False, True):
        json.dumps(execution.to_dict(compact=compact), allow_nan=False)
    assert execution.to_text()


def test_rich_main_result_replaces_the_value() -> None:
    data = {"text/plain": "a  b", "text/html": "<table></table>", "application/x-own": [1]}
    side = Result({"text/plain": "side"})
    execution = ended(value=1, shown=[side, Result(data, is_main_result=True)])
    assert execution.text == "a  b"
    main = execution.results[1]
    assert main.formats() == ["text", "html", "application/x-own"]
    assert main.extra == {"application/x-own": [1]}
    assert main["application/x-own"] == [1]
    assert list(main) == main.formats()
    assert repr(main) == "Result(a  b)"
    assert repr(Result({"image/png": PNG})) == "Result(formats: png)"


@pytest.mark.parametrize("form", [PNG, base64.b64encode(PNG).decode()])
def test_images_are_base64_and_bytes(form: object) -> None:
    result = Result({"image/png": form, "image/jpeg": form, "application/pdf": form})
    encoded = base64.b64encode(PNG).decode()
    assert (result.png, result.jpeg, result.pdf) == (encoded, encoded, encoded)
    assert (result.png_bytes, result.jpeg_bytes, result.pdf_bytes) == (PNG, PNG, PNG)


def test_mislabeled_forms_are_harmless() -> None:
    result = Result({"image/png": "no base64!", "application/json": "{", "text/html": 3, "image/jpeg": 4})
    assert (result.png, result.png_bytes, result.jpeg) == (None, None, None)
    assert result.json == "{"
    assert result.html == "3"
    assert result._repr_html_()


def test_json_and_text_forms() -> None:
    forms = {
        "text/markdown": "*a*",
        "text/latex": "$a$",
        "application/javascript": "alert(1)",
        "application/json": '{"a": [1]}',
        "application/vnd.sandfork.data+json": {"a": 1},
        "application/vnd.sandfork.chart+json": "[1]",
        "image/svg+xml": "<svg/>",
    }
    result = Result(forms)
    assert (result.markdown, result.latex, result.javascript) == ("*a*", "$a$", "alert(1)")
    assert (result.json, result.data, result.chart) == ({"a": [1]}, {"a": 1}, [1])
    assert result.raw("image/svg+xml") == b"<svg/>"
    assert result.raw("no/such") is None


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        (
            {"status": "timeout", "limit": {"name": "limits.wall", "by": "deadline"}},
            "Timeout",
            "the cell reached its limit of 30 s on the clock (limits.wall)",
        ),
        (
            {"status": "timeout", "limit": {"name": "limits.wall", "by": "deadline"}, "wall": 0.5},
            "Timeout",
            "the cell reached its limit of 0.5 s on the clock (limits.wall)",
        ),
        (
            {"status": "output-limit", "limit": {"name": "limits.output", "by": "supervisor"}},
            "OutputLimit",
            "the cell reached its limit of 1 MiB of output (limits.output)",
        ),
        (
            {"status": "pids-limit", "limit": {"name": "limits.pids", "by": "cgroup"}},
            "PidsLimit",
            "the cell reached its limit of what the policy allows processes and threads (limits.pids)",
        ),
        (
            {"status": "denied", "denied": [{"operation": "fork", "reported_by": "kernel"}]},
            "Denied",
            "the guest was killed by SIGSYS, which seccomp sends for a system call that the policy refuses",
        ),
        ({"status": "signal", "exit_code": 137}, "Signal", "the guest was ended by signal 9 (SIGKILL)"),
        ({"status": "signal", "exit_code": 168}, "Signal", "the guest was ended by signal 40"),
        ({"status": "interrupted"}, "Interrupted", "the cell was interrupted"),
        (
            {"status": "interrupted", "session": "ended"},
            "Interrupted",
            "the cell was interrupted, and its session ended: session.age was over, or it did not stop",
        ),
        ({"status": "exit", "exit_code": 3}, "SystemExit", "3"),
        ({"status": "of-tomorrow"}, "OfTomorrow", "the cell ended with of-tomorrow"),
    ],
)
def test_every_failed_status_has_an_error(fields: dict, name: str, value: str) -> None:
    execution = ended(**fields)
    assert not execution.ok
    assert execution.error is not None
    assert (execution.error.name, execution.error.value) == (name, value)


def test_an_exit_with_0_is_ok() -> None:
    execution = ended(status="exit")
    assert execution.ok
    assert execution.error is None


def test_a_limit_keeps_the_guests_traceback() -> None:
    error = {"name": "KeyboardInterrupt", "message": "", "traceback": "where it stood"}
    limit = {"name": "limits.cpu", "by": "cgroup"}
    execution = ended(status="cpu-limit", error=error, limit=limit)
    assert execution.error is not None
    assert (execution.error.name, execution.error.traceback) == ("CpuLimit", "where it stood")
    assert execution.limit == sandfork.Limit("limits.cpu", "cgroup")


def test_supervisor_measurements_are_exposed() -> None:
    denied = {"operation": "access", "target": "/etc/x", "errno": 13, "reported_by": "guest"}
    execution = ended(denied=[denied], denied_omitted=2)
    assert execution.usage.wall_ms == 1.5
    assert execution.usage.peak_memory_bytes == 1 << 20
    assert execution.enforced == sandfork.Enforced("full", ("namespaces", "seccomp"))
    assert execution.policy == sandfork.PolicyIdentity("standard", "0" * 64)
    assert execution.denied == (sandfork.Denial("access", "/etc/x", 13, "guest"),)
    assert execution.denied_omitted == 2
    assert (execution.exit_code, execution.execution_count, execution.session) == (0, 3, "live")
    assert not execution.final
    assert not execution.restarted


def test_it_is_shown_in_a_line() -> None:
    error = {"name": "ValueError", "message": "x" * 500, "traceback": ""}
    shown = repr(ended(status="exception", error=error, stdout=["a", "b\n"], stderr=["c"]))
    assert shown.startswith("<Execution exception stdout='ab\\n' stderr='c' error='ValueError: xxx")
    assert len(shown) < 250
    assert repr(ended(value="v")) == "<Execution ok text=\"'v'\">"


def test_json_has_everything() -> None:
    execution = ended(value=1, shown=[Result({"image/png": PNG})], stdout=["out"], status="exit")
    told = json.loads(execution.to_json())
    assert told["results"] == [{"png": base64.b64encode(PNG).decode()}, {"text": "1"}]
    assert told["logs"] == {"stdout": ["out"], "stderr": []}
    assert (told["status"], told["error"], told["session"]) == ("exit", None, "live")
    assert told["usage"]["peak_pids"] == 1


def test_its_output_is_harmless_to_a_terminal() -> None:
    shown = Result({"text/plain": "a\x1b[31m\x07\x7f\x85\rb\r\nc\td"})
    assert repr(shown) == "Result(a\\x1b[31m\\x07\\x7f\\x85\\rb\nc\td)"
    assert "\x1b" not in repr(ended(value="\x1b", stdout=["\x1b"]))
    hidden = "\x1b[2J\r\x9b31m"
    opaque = _values.Opaque(hidden, hidden)
    assert (repr(opaque), opaque.repr) == ("\\x1b[2J\\r\\x9b31m", hidden)
    with pytest.raises(AttributeError) as raised:
        opaque.shape  # noqa: B018
    assert str(raised.value).count("\\x1b[2J\\r\\x9b31m") == 2
    table = _values.Table([f"a\n{hidden}"], [[f"b\n{hidden}"]], 1, "no table")
    assert repr(table).splitlines()[:2] == ["a \\x1b[2J\\r\\x9b31m", "b \\x1b[2J\\r\\x9b31m"]
    for name in (hidden, f"text/{hidden}", "text/a\nb", "text/plain\n", "text", "text/", "é/a", "a b/c"):
        assert _result.decoded({"data": {name: "x", "a/b": "y"}}, []).formats() == ["a/b"]


ATTACK = '<script>fetch("/api/kernels")</script><img src=x onerror=alert(1)>'


def test_html_of_a_guest_cannot_run_in_the_notebook() -> None:
    shown = Result({"text/html": ATTACK})._repr_html_()
    # The guest's text is all in one attribute: the page contains none of its tags.
    assert re.fullmatch(
        r'<iframe sandbox="allow-same-origin" srcdoc="[^"<>]*" onload="[^"<>]*" style="[^"<>]*"></iframe>',
        shown,
    )
    assert "Content-Security-Policy" in shown.split("&lt;script")[0]
    svg = Result({"image/svg+xml": f"<svg>{ATTACK}</svg>"})._repr_html_()
    assert re.fullmatch(r'<img src="data:image/svg\+xml;base64,[A-Za-z0-9+/=]*">', svg)


def framed(markup: str) -> str:
    """The content of the frame."""
    shown = re.fullmatch(
        r'<iframe sandbox="allow-same-origin" srcdoc="([^"<>]*)" .*',
        Result({"text/html": markup})._repr_html_(),
    )
    assert shown is not None
    policy, _, rest = html.unescape(shown[1]).partition(">")
    assert policy.startswith('<meta http-equiv="Content-Security-Policy"')
    return rest


@pytest.mark.parametrize(
    ("markup", "shown"),
    [
        ('<link rel="preconnect" href="http://x.example">a', "a"),
        ('<LINK/rel=dns-prefetch href="//x.example">a', "a"),
        ('<meta http-equiv=refresh content="0;url=http://x.example"><base href="http://x.example">a', "a"),
        ('<iframe src="http://x.example">in</iframe>a', "a"),
        ('<object data="http://x.example"><img src="http://x.example"></object>a', "a"),
        ('<embed src="http://x.example">a', "a"),
        ('<img src="http://x.example" srcset="http://x.example 2x" onerror=f() width=5>', '<img width="5">'),
        ('<a href="http://x.example" ping="http://x.example">a</a>', "a"),
        ('<svg><image href="http://x.example"/></svg><math></math>a', "a"),
        ('<table background="http://x.example"><tr><td>a', "<table><tr><td>a"),
        ('<p style="background:url(http://x.example)">a</p>', "<p>a</p>"),
        ('<p style="background:u\\72l(http://x.example)">a</p>', "<p>a</p>"),
        ('<p style="background:&#117;rl(http://x.example)">a</p>', "<p>a</p>"),
        ('<p style="background:IMAGE-SET(\'http://x.example\' 1x)">a</p>', "<p>a</p>"),
        ("<style>@import 'http://x.example';</style>a", "a"),
        ("<style>@font-face{font-family:f;src:url(http://x.example)}</style>a", "a"),
        ("<style>p{color:red}</style><link href=x></style>a", "<style>p{color:red}</style>a"),
        ("<!-- <b> --><script>'<b>'</script><video src=x></video>a", "a"),
        ("<!-- never closed <b>a", ""),
        ("<script>never closed <b>a", ""),
        ("<form action='http://x.example'><input type=image src=x><button>a</button></form>", "a"),
        ("<!DOCTYPE html><html><head></head><body onload=f()>a &lt; b < c > d</body></html>",
         "a &lt; b &lt; c &gt; d"),
        ('<p title="a>b<link rel=preconnect href=//x.example>">', '<p title="">b"&gt;'),
        ('<p title=\'"><link>\'>', "<p title=\"\">'&gt;"),
        ("<p\x00onclick=f()>a<x-y>b</x-y>", "<p>ab"),
    ],
)  # fmt: skip
def test_html_of_a_guest_connects_to_nothing(markup: str, shown: str) -> None:
    told = framed(markup)
    assert told == shown


def test_html_of_libraries_is_shown() -> None:
    table = (
        '<style type="text/css">\n#T_1 td:nth-child(2) {\n  background: rgba(1, 2, 3, 0.5);\n}\n</style>'
        '<table border="1" class="dataframe"><thead><tr style="text-align: right;"><th></th></tr></thead>'
        '<tr><td id="T_1" colspan="2">1 &lt; &#50;</td></tr></table><details open="">x<br></details>'
    )
    assert framed(table) == table.replace(' type="text/css"', "")
    picture = f'<img src="data:image/png;base64,{base64.b64encode(PNG).decode()}" alt="a">'
    assert framed(picture) == picture


@pytest.mark.parametrize("unit", ["<", "<a", "<!--", "</", '<a "', '<a b="', "<p a='", "a", " ", "<p ", "("])
@pytest.mark.parametrize("around", ["%s", "<p %s>", '<p style="%s">', "<style>%s</style>", "<p a%s=b>"])
def test_rebuilding_html_takes_linear_time(unit: str, around: str) -> None:
    def seconds(count: int) -> float:
        text = around % (unit * count)
        began = time.process_time()
        _html.inert(text)
        return time.process_time() - began

    # The text is fifty times as long; quadratic time would grow by a factor of 2,500.
    assert min(seconds(100_000) for _ in range(3)) < 600 * max(min(seconds(2_000) for _ in range(3)), 1e-4)


def test_text_of_a_guest_is_escaped() -> None:
    error = {"name": "E", "message": ATTACK, "traceback": ATTACK}
    execution = ended(status="exception", error=error, stdout=[ATTACK], stderr=[ATTACK], value=ATTACK)
    shown = execution._repr_html_()
    assert "<script" not in shown
    assert "onerror=alert(1)>" not in shown
    assert "level full" in shown
    for form in ("text/markdown", "application/javascript", "text/latex"):
        assert "<script" not in Result({form: ATTACK})._repr_html_()


def test_images_are_shown() -> None:
    for kind in ("png", "jpeg"):
        shown = Result({f"image/{kind}": PNG, "text/plain": "t"})._repr_html_()
        assert shown == f'<img src="data:image/{kind};base64,{base64.b64encode(PNG).decode()}">'
    assert Result({"text/plain": "a<b"})._repr_html_().endswith("a&lt;b</pre>")


def test_results_arrive_as_they_are_displayed(fake: FakeSupervisor) -> None:
    def show(session, cell):
        session.display({"text/plain": "one", "image/png": PNG * 20_000})
        session.display({"text/html": "<b>two</b>"}, main=True)
        session.outcome(cell, value=2)

    fake.on("show", show)
    seen = []
    with Sandbox(on_result=seen.append) as sbx:
        execution = sbx.run("show")
    assert execution.results == seen
    assert [result.is_main_result for result in seen] == [False, True]
    assert seen[0].png_bytes == PNG * 20_000
    assert execution.text is None


@pytest.mark.parametrize("wrap", [lambda number: number, lambda number: {"a": [number]}])
def test_a_number_too_long_for_text_is_still_a_value(wrap) -> None:
    # Converting a million bits to text takes seconds if Python has no limit, and raises if it has one.
    number = wrap(1 << 999_000)
    tree = {"type": "int", "hex": f"{1 << 999_000:x}"}
    if isinstance(number, dict):
        tree = {"type": "dict", "items": [["a", [tree]]]}
    for execution in (ended(value=tree), pickle.loads(pickle.dumps(ended(value=tree)))):
        assert execution.text == f"<{type(number).__name__} with an integer of more than 4300 digits>"
        assert execution.value == number
        assert execution.text in execution.to_json()
        assert execution.text in repr(execution)


@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: [text]])
def test_a_value_too_large_for_text_is_still_a_value(wrap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_text, "_LARGEST_REPR", 9)
    for size, written in ((9, "repr"), (10, "summary")):
        execution = ended(value=wrap({"type": "text", "buffer": 0}), buffers=[memoryview(b"\1" * size)])
        value = wrap("\1" * size)
        said = repr(value) if written == "repr" else f"<{type(value).__name__} of 10 bytes>"
        assert execution.text == said
        assert execution.value == value
        assert execution.to_text() == f"[value] {said}"
        if written == "summary":
            assert execution.to_dict(compact=True)["value"] == said


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_non_json_numbers_keep_the_format(number: str) -> None:
    execution = ended(shown=[Result({"application/json": number})])
    document = json.loads(execution.to_json(), parse_constant=pytest.fail)
    assert document["results"] == [{"json": number}]


FORGED = [
    {"type": "int", "hex": "f" * 100_000},
    {"type": "dict", "items": [[{"type": "tuple", "items": [1]}, 2]]},
    {"type": "set", "items": [1, 2]},
    {"type": "timedelta", "days": 1, "seconds": 0, "microseconds": 0},
    [{"type": "int", "hex": "f" * 100_000}],
    {"type": "text", "buffer": 9},
    1.5,
    None,
    "[" * 5000 + "]" * 5000,
    "[" * 900 + "]" * 900,
    "9" * 100_000,
    "[NaN, 1e999, " + "9" * 5000 + "]",
    "[" + "[]," * (5 << 20) + "[]]",
    "\ud800",
    "=",
]


@pytest.mark.parametrize("form", FORGED, ids=range(len(FORGED)))
def test_accessors_of_forged_data_do_not_raise(form: object) -> None:
    names = ["text/plain", "text/html", "image/png", "application/json", "image/svg+xml", "x/y", ""]
    names += ["application/vnd.sandfork.data+json", "application/vnd.sandfork.chart+json"]
    result = _result.decoded({"data": dict.fromkeys(names, form), "main": True}, [])
    execution = ended(value=form, shown=[result])
    assert type(json.loads(execution.to_json())) is dict
    assert isinstance(execution.text, (str, type(None)))
    for shown in (execution, *execution.results):
        assert isinstance(repr(shown), str)
        assert isinstance(shown._repr_html_(), str)
    for name in (*result, *result.formats()):
        if isinstance(form, str):
            assert result[name] is not None or name in ("png", "image/png")
        result.raw(name)
    assert isinstance(ended(value=form).text, (str, type(None)))


def test_forms_are_text_and_bytes() -> None:
    header = {"data": {"text/plain": [1], "x/y": {"type": "json", "buffer": 0}, "a/b": "c"}}
    assert _result.decoded(header, [memoryview(b'"text"')]).formats() == ["a/b"]


def test_json_forms_are_bounded_like_values() -> None:
    many = "[" + "0," * (5 << 20) + "0]"
    assert Result({"application/json": many}).json == many
    few = "[" + "0," * 1000 + "0]"
    assert Result({"application/json": few}).json == [0] * 1001


def test_an_execution_can_be_pickled_and_copied_before_it_is_read(fake: FakeSupervisor) -> None:
    with Sandbox(variables={"data": b"x" * 100_000}) as sbx:
        for copied in (pickle.loads(pickle.dumps(sbx.run("data"))), copy.deepcopy(sbx.run("data"))):
            assert copied.value == b"x" * 100_000
            assert copied.ok
            assert copied.results[0].is_main_result


def test_display_keeps_its_valid_forms() -> None:
    header = {"data": {"text/plain": "t", "image/png": {"type": "bytes", "buffer": 7}}, "main": True}
    result = _result.decoded(header, [])
    assert result.formats() == ["text"]
    assert result.is_main_result


def test_denial_names_the_setting_that_allows_it() -> None:
    explained = {
        "layer": "mounts",
        "file": "a.py",
        "line": 3,
        "key": "filesystem.read",
        "on_host": True,
        "count": 2,
    }
    told = {"operation": "access", "target": "/srv/\x1b[2J", "reported_by": "guest", **explained}
    [denial] = ended(denied=[told]).denied
    assert (denial.file, denial.line, denial.on_host, denial.count) == ("a.py", 3, True, 2)
    said = r"access /srv/\x1b[2J by mounts"
    assert str(denial) == f"{said} (`filesystem.read` of the policy allows it)"
    [denial] = ended(denied=[{**told, "target": "/srv/x", "set": "filesystem.read=/srv/x"}]).denied
    assert str(denial) == "access /srv/x by mounts (`filesystem.read=/srv/x` in the policy allows it)"
    call = {"operation": "system call", "target": "execve", "layer": "seccomp", "key": "syscalls.deny"}
    [denial] = ended(denied=[call]).denied
    assert str(denial) == "system call execve by seccomp (`syscalls.deny` of the policy lists it)"
    denial = replace(denial, operation="run", target="/usr/bin/ls")
    assert str(denial) == "run /usr/bin/ls by seccomp (`syscalls.deny` of the policy lists `execve`)"
    assert str(sandfork.Denial("fork", None, None, "kernel")) == "fork"

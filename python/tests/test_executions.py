"""What a caller is told of a cell's end."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import re

import pytest

import sandfork
from sandfork import Execution, Logs, Result, Sandbox, _reports, _result
from sandfork._values import Encoder

from .support.fake import ENFORCED, LIMITS, POLICY, USAGE, FakeSupervisor

PNG = b"\x89PNG\r\n\x1a\n"


def ended(*, shown=(), stdout=(), stderr=(), wall=None, value=None, session="live", **fields) -> Execution:
    inner = {"status": "ok", "exit_code": 0, "limit": None, "error": None, "denied": [], **fields}
    told = {**inner, "usage": USAGE}
    header = {"outcome": told, "value": value, "session": session, "execution_count": 3, "final": False}
    logs = Logs(list(stdout), list(stderr))
    info = _reports.session_info({"enforced": ENFORCED, "policy": POLICY, "limits": LIMITS})
    return Execution(header, logs, list(shown), info, wall=wall)


def test_the_value_is_the_main_result_where_nothing_richer_was_shown() -> None:
    execution = ended(value=42)
    assert execution.text == "42"
    (main,) = execution.results
    assert main.is_main_result
    assert main.formats() == ["text"]
    assert (main["text"], main["text/plain"], main.html) == ("42", "42", None)
    assert ended().text is None
    assert ended().results == []


def test_a_richer_main_result_stands_for_the_value() -> None:
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


def test_forms_that_are_not_what_they_say_are_harmless() -> None:
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
            {"status": "denied", "denied": [{"operation": "ptrace", "reported_by": "kernel"}]},
            "Denied",
            "the guest was killed by seccomp for the system call `ptrace`, which the policy refuses",
        ),
        ({"status": "signal", "exit_code": 137}, "Signal", "the guest was ended by signal 9 (SIGKILL)"),
        ({"status": "signal", "exit_code": 168}, "Signal", "the guest was ended by signal 40"),
        ({"status": "interrupted"}, "Interrupted", "the cell was interrupted"),
        ({"status": "exit", "exit_code": 3}, "SystemExit", "3"),
        ({"status": "of-tomorrow"}, "OfTomorrow", "the cell ended with of-tomorrow"),
    ],
)
def test_every_end_that_is_not_ok_has_an_error(fields: dict, name: str, value: str) -> None:
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


def test_what_the_supervisor_saw() -> None:
    denied = {"operation": "file access", "target": "/etc/x", "errno": 13, "reported_by": "guest"}
    execution = ended(denied=[denied])
    assert execution.usage.wall_ms == 1.5
    assert execution.usage.peak_memory_bytes == 1 << 20
    assert execution.enforced == sandfork.Enforced("full", ("namespaces", "seccomp"))
    assert execution.policy == sandfork.PolicyIdentity("standard", "0" * 64)
    assert execution.denied == (sandfork.Denial("file access", "/etc/x", 13, "guest"),)
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


ATTACK = '<script>fetch("/api/kernels")</script><img src=x onerror=alert(1)>'


def test_html_of_a_guest_cannot_run_in_the_notebook() -> None:
    shown = Result({"text/html": ATTACK})._repr_html_()
    # All of it is the text of one attribute: no tag of the guest's stands in the page.
    assert re.fullmatch(r'<iframe sandbox srcdoc="[^"<>]*" style="[^"<>]*"></iframe>', shown)
    assert "Content-Security-Policy" in shown.split("&lt;script")[0]
    svg = Result({"image/svg+xml": f"<svg>{ATTACK}</svg>"})._repr_html_()
    assert re.fullmatch(r'<img src="data:image/svg\+xml;base64,[A-Za-z0-9+/=]*">', svg)


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


def test_results_come_as_they_are_shown(fake: FakeSupervisor) -> None:
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


def test_a_number_too_long_for_text_is_still_a_value() -> None:
    encoder = Encoder()
    execution = ended(value=encoder.encode(10**6000))
    assert execution.value == 10**6000
    assert execution.text


def test_an_execution_can_be_pickled_and_copied_before_it_is_read(fake: FakeSupervisor) -> None:
    with Sandbox(variables={"data": b"x" * 100_000}) as sbx:
        for copied in (pickle.loads(pickle.dumps(sbx.run("data"))), copy.deepcopy(sbx.run("data"))):
            assert copied.value == b"x" * 100_000
            assert copied.ok
            assert copied.results[0].is_main_result


def test_a_display_keeps_what_is_sound() -> None:
    header = {"data": {"text/plain": "t", "image/png": {"type": "bytes", "buffer": 7}}, "main": True}
    result = _result.decoded(header, [])
    assert result.formats() == ["text"]
    assert result.is_main_result

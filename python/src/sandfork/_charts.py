"""Draws charts of plotly, Bokeh and Vega-Altair in a notebook, after the caller's opt-in.

The guest sends a chart's data. The scripts that draw it come from the caller's own packages, so no guest code
runs. They run in a frame with a separate origin, which can access neither the page nor the kernel. Its
content security policy allows no other script, no `eval` and no connection. An outer frame prevents
navigation to another address, which a link in the data could cause."""

from __future__ import annotations

import base64
import re
import secrets
from functools import cache
from html import escape
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._result import Result

_KINDS = re.compile(
    r"application/vnd\.(?:(plotly)\.v1|(vegalite)\.v[0-9]{1,2}|sandfork\.(bokeh)\.v([0-9]{1,2}))\+json"
)
_PACKAGES = {"plotly": "plotly", "vegalite": "vl-convert-python", "bokeh": "bokeh"}
_FILES = {
    "plotly": ("package_data/plotly.min.js",),
    "bokeh": tuple(f"server/static/js/bokeh{part}.min.js" for part in ("", "-widgets", "-tables", "-api")),
}
_DRAW = {
    "plotly": "Plotly.newPlot('chart',spec.data,spec.layout,"
    "{responsive:true,displaylogo:false,showSendToCloud:false,plotlyServerURL:''})",
    "bokeh": "Bokeh.embed.embed_item(spec,'chart')",
    "vegalite": "vegaEmbed('#chart',spec,{mode:'vega-lite',actions:false,ast:true,loader:{http:false}})",
}
# Sends the content's height to the page around both frames, which accepts only a number.
_REPORT = (
    "const root=document.documentElement,tell=()=>parent.parent.postMessage("
    "{sandforkHeight:root.offsetHeight},'*');new ResizeObserver(tell).observe(root);"
    # The page listens only once the frame has loaded.
    "for(const wait of [100,500,2000])setTimeout(tell,wait)"
)
_LISTEN = (
    "var f=this;addEventListener('message',function(e){if(e.source===f.contentWindow[0]&&e.data"
    "&&typeof e.data.sandforkHeight==='number')"
    "f.style.height=Math.max(60,Math.min(2000,e.data.sandforkHeight+8))+'px'})"
)


class Display:
    """Settings for the display of results in a notebook. `scripts = True` draws plotly, Bokeh and Vega-Altair
    charts."""

    __slots__ = ("scripts",)

    def __init__(self) -> None:
        self.scripts = False
        """Whether the scripts of the caller's own chart libraries run, in frames without network."""


# Its users know it as `sandfork.display`.
Display.__module__ = "sandfork"
display = Display()


def chart_of(shown: Result) -> tuple[re.Match[str], str] | None:
    """Returns the parsed media type and the data of a chart, if the result has one."""
    for media_type, form in shown.extra.items():
        found = _KINDS.fullmatch(media_type)
        if found is not None and isinstance(form, str):
            return found, form
    return None


def frame(kind: re.Match[str], data: str) -> str:
    """Renders a chart as HTML, or a sentence with the setting or package that is needed to draw it."""
    name = kind[1] or kind[2] or kind[3]
    if not display.scripts:
        return _sentence(f"a chart of {name}: set sandfork.display.scripts = True to draw it here")
    package = _PACKAGES[name]
    scripts = _scripts(name)
    if scripts is None:
        return _sentence(
            f"a chart of {name}: install {package} in this Python, which has the scripts to draw it"
        )
    if name == "bokeh" and metadata.version("bokeh").partition(".")[0] != kind[4]:
        return _sentence(f"a chart of Bokeh {kind[4]}: this Python has Bokeh {metadata.version('bokeh')}")
    nonce = secrets.token_urlsafe(16)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:; "
        "font-src data:; frame-src 'none'; form-action 'none'; base-uri 'none'"
    )
    head = (
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    )
    encoded = base64.b64encode(data.encode("utf-8", "replace")).decode("ascii")
    spec = f"JSON.parse(new TextDecoder().decode(Uint8Array.from(atob('{encoded}'),c=>c.charCodeAt(0))))"
    draw = f"const spec={spec};{_DRAW[name]};{_REPORT}"
    tags = "".join(f'<script nonce="{nonce}">{text}</script>' for text in (*scripts, draw))
    inner = f'{head}<body style="margin:0"><div id="chart"></div>{tags}'
    outer = (
        f'{head}<body style="margin:0"><iframe sandbox="allow-scripts" srcdoc="{escape(inner)}" '
        'style="border:0;width:100%;height:100vh;display:block"></iframe>'
    )
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{escape(outer)}" onload="{escape(_LISTEN)}" '
        'style="border:0;width:100%;height:460px;resize:vertical"></iframe>'
    )


def _sentence(text: str) -> str:
    return f"<p><em>{escape(text)}</em></p>"


@cache
def _scripts(name: str) -> tuple[str, ...] | None:
    """Returns the sources of a library's scripts; `None` if it is not installed here."""
    if name == "vegalite":
        bundle = _vega()
        return None if bundle is None else (_inline(bundle),)
    spec = util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    try:
        return tuple(_inline((root / file).read_text("utf-8")) for file in _FILES[name])
    except OSError:
        return None


def _vega() -> str | None:
    try:
        import vl_convert
    except ImportError:
        return None
    bundle: Any = vl_convert.javascript_bundle("window.vegaEmbed=vegaEmbed")
    return str(bundle)


def _inline(text: str) -> str:
    """Escapes a script so that it cannot end its `script` element."""
    return re.sub(r"<(?=/script|!--)", r"\\x3c", text, flags=re.IGNORECASE)

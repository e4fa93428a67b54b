"""Renders results in a notebook.

The guest's content must not run in the notebook's page, where it could access the kernel and through it
the host. It must not connect to any address either. Its HTML is therefore rebuilt from an allowlist of
elements and attributes, in a frame without scripts and network. Its SVG is shown as an image,
and charts are drawn from their data by the caller's own scripts (`_charts`).
"""

from __future__ import annotations

import base64
import re
from html import escape
from typing import TYPE_CHECKING

from . import _charts
from ._text import readable

if TYPE_CHECKING:
    from ._execution import Execution
    from ._result import Result

# Precedes the content to which it applies. It forbids loading, so that no data leaks through an address. It
# does not apply to connections that a browser opens before loading.
_CONTENT_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "img-src data:; font-src data:; style-src 'unsafe-inline'\">"
)
_PRE = 'style="margin:0;white-space:pre-wrap;font-family:monospace"'
# Fits a frame to its content. The content runs no scripts, so that it gains nothing from the page's origin.
_FIT = (
    "var d=this.contentDocument.documentElement;this.style.height='0';"
    "this.style.height=Math.min(2000,d.scrollHeight+20)+'px'"
)


# Maximum number of characters of HTML to rebuild for one execution. Each may take a microsecond.
LARGEST_HTML = 2 << 20


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ELEMENTS = _words(
    "abbr address article aside b bdi bdo big blockquote br caption center cite code col colgroup dd del "
    "details dfn div dl dt em figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li "
    "main mark meter nav ol p pre progress q s samp section small span strike strong sub summary sup "
    "table tbody td tfoot th thead time tr tt u ul var wbr"
)
_ATTRIBUTES = _words(
    "abbr align alt bgcolor border cellpadding cellspacing class color colspan dir face headers height high "
    "id lang low max min open optimum reversed role rowspan rules scope size span start style title "
    "type valign value width"
)
# Elements that are removed together with their content.
_UNSEEN = _words(
    "applet audio canvas frameset iframe math noembed noframes noscript object plaintext "
    "script select svg template textarea title video xmp"
)
# An image in a data URL.
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*")
# These patterns allow no `<` or `>` inside an element, although HTML allows both in quotes. A deviation
# from a browser's parser is safe, because the output is rebuilt. Each pattern therefore takes time linear
# in the guest's text, which html.parser does not.
_MARKUP = re.compile(r"<!--|<[^<>]*>")
_ELEMENT = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)(?![A-Za-z0-9])(.*)>", re.DOTALL)
_ATTRIBUTE = re.compile(r"""([A-Za-z-]+)(?![A-Za-z-])(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"']+)))?""")
# CSS functions that take no address, and at-rules that name none.
_FUNCTIONS = _words(
    "calc clamp hsl hsla is linear-gradient max min not nth-child nth-last-child nth-of-type radial-gradient "
    "rgb rgba rotate scale scalex scaley translate translatex translatey var where"
)
_RULES = _words("keyframes media supports")
_CALL = re.compile(r"(?<![\w-])([\w-]*)\(")
_RULE = re.compile(r"@([\w-]*)")


def result(shown: Result, room: int = LARGEST_HTML) -> str:
    """Renders the richest form that can be shown safely, and skips HTML of more than `room` characters."""
    chart = _charts.chart_of(shown)
    if chart is not None and (_charts.display.scripts or shown.svg is None):
        return _charts.frame(*chart)
    html = shown.html
    if html is not None and len(html) <= room:
        # The estimated height is used if the page forbids `onload`.
        lines = min(30, 4 + html.count("<tr") + html.count("\n") // 4)
        return (
            f'<iframe sandbox="allow-same-origin" srcdoc="{escape(_CONTENT_POLICY + inert(html))}" '
            f'onload="{escape(_FIT)}" '
            f'style="border:0;width:100%;height:{2 * lines}em;resize:vertical"></iframe>'
        )
    for kind, data in (("png", shown.png), ("jpeg", shown.jpeg)):
        if data is not None:
            return f'<img src="data:image/{kind};base64,{data}">'
    if shown.svg is not None:
        data = base64.b64encode(shown.svg.encode("utf-8", "replace")).decode("ascii")
        return f'<img src="data:image/svg+xml;base64,{data}">'
    text = readable(shown)
    return f"<pre {_PRE}>{escape(repr(shown) if text is None else text)}</pre>"


def execution(ended: Execution) -> str:
    """Renders the cell's output, results, exception and outcome as HTML."""
    parts = [f"<pre {_PRE}>{escape(''.join(ended.logs.stdout))}</pre>"] if ended.logs.stdout else []
    if ended.logs.stderr:
        parts.append(f'<pre {_PRE[:-1]};color:#a33">{escape("".join(ended.logs.stderr))}</pre>')
    room = LARGEST_HTML
    for shown in ended.results:
        parts.append(result(shown, room))
        length = len(shown.html or "")
        room -= length if length <= room else 0
    if ended.error is not None:
        text = ended.error.traceback or f"{ended.error.name}: {ended.error.value}"
        parts.append(f'<pre {_PRE[:-1]};color:#a33">{escape(text)}</pre>')
    usage = ended.usage
    end = f"{ended.status}, {usage.wall_ms:.1f} ms, level {ended.enforced.level}, session {ended.session}"
    parts.append(f"<small>{escape(end)}</small>")
    return "<div>" + "".join(parts) + "</div>"


def inert(html: str) -> str:
    """Rebuilds HTML from an allowlist of elements and attributes that neither run code nor connect."""
    parts: list[str] = []
    at = 0
    while True:
        found = _MARKUP.search(html, at)
        parts.append(_text(html[at : found.start()] if found else html[at:]))
        if found is None:
            return "".join(parts)
        at = found.end()
        if found[0] == "<!--":
            at = _behind(html, at, "-->")
            continue
        element = _ELEMENT.fullmatch(found[0])
        if element is None:
            # `a < b > c` is text; a doctype is dropped.
            parts.append("" if found[0][1] in "!?/" else _text(found[0]))
            continue
        closing, name, attributes = element[1], element[2].lower(), element[3]
        if closing:
            parts.append(f"</{name}>" if name in _ELEMENTS else "")
        elif name in _UNSEEN or name == "style":
            end = re.compile(f"</{name}", re.IGNORECASE).search(html, at)
            content, at = (html[at : end.start()], end.start()) if end else (html[at:], len(html))
            if name == "style" and _is_inert_style(content):
                parts.append(f"<style>{content}</style>")
        elif name in _ELEMENTS:
            parts.append(f"<{name}{_attributes(name, attributes)}>")


def _behind(html: str, at: int, end: str) -> int:
    found = html.find(end, at)
    return len(html) if found < 0 else found + len(end)


def _text(text: str) -> str:
    """Escapes angle brackets. Character references stay unchanged."""
    return text.replace("<", "&lt;").replace(">", "&gt;")


def _attributes(element: str, text: str) -> str:
    kept = []
    for found in _ATTRIBUTE.finditer(text):
        name, value = found[1].lower(), found[2] or found[3] or found[4] or ""
        if name == "src":
            keep = element == "img" and _PICTURE.fullmatch(value) is not None
        elif name == "style":
            keep = "&" not in value and _is_inert_style(value)
        else:
            keep = name in _ATTRIBUTES or name.startswith("aria-")
        if keep:
            quoted = _text(value).replace('"', "&quot;")
            kept.append(f' {name}="{quoted}"')
    return "".join(kept)


def _is_inert_style(css: str) -> bool:
    """Returns whether a style sheet contains no address."""
    return (
        not {"\\", "<"} & set(css)
        and all(call == "" or call.lower() in _FUNCTIONS for call in _CALL.findall(css))
        and all(rule.lower() in _RULES for rule in _RULE.findall(css))
    )

"""How results look in a notebook.

What a guest shows must not run in the notebook's page, where it could reach the kernel and with it
the host: its HTML is put into a frame without scripts and without network, its SVG into an image.
"""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._execution import Execution
    from ._result import Result

# Stands before what it governs: nothing is loaded, so that nothing leaks into an address either.
_CONTENT_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "img-src data:; font-src data:; style-src 'unsafe-inline'\">"
)
_PRE = 'style="margin:0;white-space:pre-wrap"'


def result(shown: Result) -> str:
    """The richest form that can be shown safely."""
    html = shown.html
    if html is not None:
        lines = min(30, 4 + html.count("<tr") + html.count("\n") // 4)
        return (
            f'<iframe sandbox srcdoc="{escape(_CONTENT_POLICY + html)}" '
            f'style="border:0;width:100%;height:{2 * lines}em;resize:vertical"></iframe>'
        )
    for kind, data in (("png", shown.png), ("jpeg", shown.jpeg)):
        if data is not None:
            return f'<img src="data:image/{kind};base64,{data}">'
    if shown.svg is not None:
        data = base64.b64encode(shown.svg.encode("utf-8", "replace")).decode("ascii")
        return f'<img src="data:image/svg+xml;base64,{data}">'
    text = shown.text if shown.text is not None else repr(shown)
    return f"<pre {_PRE}>{escape(text)}</pre>"


def execution(ended: Execution) -> str:
    """What it printed, what it shows, what it raised, and how it ended."""
    parts = [f"<pre {_PRE}>{escape(''.join(ended.logs.stdout))}</pre>"] if ended.logs.stdout else []
    if ended.logs.stderr:
        parts.append(f'<pre {_PRE[:-1]};color:#a33">{escape("".join(ended.logs.stderr))}</pre>')
    parts.extend(result(shown) for shown in ended.results)
    if ended.error is not None:
        text = ended.error.traceback or f"{ended.error.name}: {ended.error.value}"
        parts.append(f'<pre {_PRE[:-1]};color:#a33">{escape(text)}</pre>')
    usage = ended.usage
    end = f"{ended.status}, {usage.wall_ms:.1f} ms, level {ended.enforced.level}, session {ended.session}"
    parts.append(f"<small>{escape(end)}</small>")
    return "<div>" + "".join(parts) + "</div>"

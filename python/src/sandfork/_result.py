"""What a cell shows: rich forms of a value, as a notebook has them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import _html, _values

# The attribute of each media type. Those of `_BINARY` are bytes, and base64 text as an attribute.
_ATTRIBUTES = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "application/vnd.sandfork.data+json": "data",
    "application/vnd.sandfork.chart+json": "chart",
}
_TYPES = {attribute: media_type for media_type, attribute in _ATTRIBUTES.items()}


class Result:
    """Something that a cell shows, in one or more forms: the attributes that are not `None`.

    The attributes are those of E2B's `Result`. All of it is the guest's word: HTML, SVG and JavaScript
    in it are as untrusted as the code. In a notebook it is shown where they cannot run.
    """

    __slots__ = ("_data", "is_main_result")

    def __init__(self, data: Mapping[str, Any], *, is_main_result: bool = False) -> None:
        self._data = dict(data)
        self.is_main_result = is_main_result
        """Whether it is the value of the cell's last expression."""

    @property
    def text(self) -> str | None:
        return self._text("text")

    @property
    def html(self) -> str | None:
        return self._text("html")

    @property
    def markdown(self) -> str | None:
        return self._text("markdown")

    @property
    def svg(self) -> str | None:
        return self._text("svg")

    @property
    def png(self) -> str | None:
        """In base64."""
        return self._base64("png")

    @property
    def jpeg(self) -> str | None:
        """In base64."""
        return self._base64("jpeg")

    @property
    def pdf(self) -> str | None:
        """In base64."""
        return self._base64("pdf")

    @property
    def latex(self) -> str | None:
        return self._text("latex")

    @property
    def json(self) -> Any:
        return self._json("json")

    @property
    def javascript(self) -> str | None:
        return self._text("javascript")

    @property
    def data(self) -> Any:
        """Of a table or the like, as plain lists and dicts."""
        return self._json("data")

    @property
    def chart(self) -> Any:
        """Of a plot, as plain lists and dicts."""
        return self._json("chart")

    @property
    def extra(self) -> dict[str, Any]:
        """Forms of media types that have no attribute."""
        return {name: form for name, form in self._data.items() if name not in _ATTRIBUTES}

    @property
    def png_bytes(self) -> bytes | None:
        return self.raw("image/png")

    @property
    def jpeg_bytes(self) -> bytes | None:
        return self.raw("image/jpeg")

    @property
    def pdf_bytes(self) -> bytes | None:
        return self.raw("application/pdf")

    def raw(self, media_type: str) -> bytes | None:
        """A form's bytes; text as UTF-8. `None` where there is no such form, or it is broken."""
        form = self._data.get(media_type)
        if isinstance(form, str) and media_type in _BINARY:
            try:
                # Libraries give images as bytes, or as base64 in lines.
                return base64.b64decode("".join(form.split()), validate=True)
            except (binascii.Error, ValueError):
                return None
        if isinstance(form, str):
            return form.encode("utf-8", "surrogatepass")
        return bytes(form) if isinstance(form, (bytes, bytearray)) else None

    def formats(self) -> list[str]:
        """The attributes that it has, and the media types of `extra`."""
        return [_ATTRIBUTES.get(name, name) for name in self._data]

    def __getitem__(self, name: str) -> Any:
        """A form by its attribute's name or its media type."""
        if name in _TYPES:
            return getattr(self, name)
        return self._data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.formats())

    def __repr__(self) -> str:
        if self.text is not None:
            return f"Result({self.text})"
        return f"Result(formats: {', '.join(self.formats())})"

    def _repr_html_(self) -> str:
        return _html.result(self)

    def _text(self, attribute: str) -> str | None:
        form = self._data.get(_TYPES[attribute])
        return form if form is None or isinstance(form, str) else str(form)

    def _base64(self, attribute: str) -> str | None:
        raw = self.raw(_TYPES[attribute])
        return None if raw is None else base64.b64encode(raw).decode("ascii")

    def _json(self, attribute: str) -> Any:
        form = self._data.get(_TYPES[attribute])
        if not isinstance(form, str):
            return form
        try:
            return json.loads(form)
        except (ValueError, RecursionError):
            return form


_BINARY = ("image/png", "image/jpeg", "application/pdf")


def decoded(header: Mapping[str, Any], buffers: Sequence[memoryview]) -> Result:
    """What a `display` message shows; a form that is malformed is left out, for the guest wrote it."""
    decoder = _values.Decoder(buffers)
    forms: dict[str, Any] = {}
    for media_type, tree in header["data"].items():
        try:
            forms[media_type] = decoder.decode(tree)
        except ValueError:
            continue
    return Result(forms, is_main_result=header.get("main") is True)

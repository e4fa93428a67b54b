"""The rich forms of a value that a cell shows, as in a notebook."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import _html, _values
from ._terminal import harmless

# The attribute of each media type. A form in `_BINARY` is bytes; its attribute is base64 text.
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
# The types of a display's forms. Only cheap ones, because a display is decoded while its cell runs.
_FORMS = ("text", "bytes", "bytearray")
# The number of digits of an integer that every Python converts, with any setting of its limit.
_DIGITS = 640


class Result:
    """A value that a cell shows, in one or more forms. An attribute is `None` if that form is missing.

    The attributes are those of E2B's `Result`. All forms come from the guest: their HTML, SVG and
    JavaScript are as untrusted as its code. A notebook shows them where they cannot run.
    """

    __slots__ = ("_data", "is_main_result")

    def __init__(self, data: Mapping[str, Any], *, is_main_result: bool = False) -> None:
        self._data = dict(data)
        self.is_main_result = is_main_result
        """Whether this is the value of the cell's last expression."""

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
        """The data of a table or similar object, as plain lists and dicts."""
        return self._json("data")

    @property
    def chart(self) -> Any:
        """The data of a plot, as plain lists and dicts."""
        return self._json("chart")

    @property
    def extra(self) -> dict[str, Any]:
        """The forms without an attribute, by media type."""
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
        """A form's bytes; text is encoded as UTF-8. `None` if the form is missing or malformed."""
        form = self._data.get(media_type)
        if isinstance(form, str) and media_type in _BINARY:
            try:
                # Libraries provide images as bytes, or as base64 with line breaks.
                text = form.encode("ascii").translate(None, b" \t\r\n\v\f")
                return base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                return None
        if isinstance(form, str):
            return form.encode("utf-8", "surrogatepass")
        return bytes(form) if isinstance(form, (bytes, bytearray)) else None

    def formats(self) -> list[str]:
        """The names of the attributes that are not `None`, and the media types of `extra`."""
        return [_ATTRIBUTES.get(name, name) for name in self._data]

    def __getitem__(self, name: str) -> Any:
        """A form by its attribute name or its media type."""
        if name in _TYPES:
            return getattr(self, name)
        return self._data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.formats())

    def __repr__(self) -> str:
        if self.text is not None:
            return f"Result({harmless(self.text)})"
        return f"Result(formats: {', '.join(self.formats())})"

    def _repr_html_(self) -> str:
        return _html.result(self)

    def _text(self, attribute: str) -> str | None:
        form = self._data.get(_TYPES[attribute])
        return form if form is None or isinstance(form, str) else _values.safe_repr(form)

    def _plain(self, name: str) -> Any:
        """A form as it was received."""
        return self._data.get(_TYPES.get(name, name))

    def _base64(self, attribute: str) -> str | None:
        raw = self.raw(_TYPES[attribute])
        return None if raw is None else base64.b64encode(raw).decode("ascii")

    def _json(self, attribute: str) -> Any:
        form = self._data.get(_TYPES[attribute])
        if not isinstance(form, str):
            return form
        try:
            _values.check_json(form.encode("utf-8", "surrogatepass"))
            return json.loads(form, parse_int=_integer)
        except (ValueError, RecursionError):
            return form


_BINARY = ("image/png", "image/jpeg", "application/pdf")


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError("a number of too many digits")
    return int(text)


def decoded(header: Mapping[str, Any], buffers: Sequence[memoryview]) -> Result:
    """The result in a `display` message. Forms come from the guest: those that are malformed, or neither text
    nor bytes, are omitted."""
    decoder = _values.Decoder(buffers)
    forms: dict[str, Any] = {}
    for media_type, tree in header["data"].items():
        if type(tree) is str or (type(tree) is dict and tree.get("type") in _FORMS):
            try:
                forms[media_type] = decoder.decode(tree)
            except ValueError:
                continue
    return Result(forms, is_main_result=header.get("main") is True)

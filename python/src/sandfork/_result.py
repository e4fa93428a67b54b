"""Rich displays of a cell, as in a notebook."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar

from . import _html, _values
from ._text import shortened
from ._values import harmless

# The types of a display's forms. All are cheap to decode, because a display is decoded while its cell runs.
_FORMS = ("text", "bytes", "bytearray")
# The number of digits that Python always converts to an integer (`sys.int_info.str_digits_check_threshold`).
_DIGITS = 640
# Maximum number of characters of a text in a `repr()`.
_LONGEST_TEXT = 64 << 10
_BINARY = ("image/png", "image/jpeg", "application/pdf")
# The name of a media type (RFC 6838, section 4.2).
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}")

T = TypeVar("T")


class _Form(property, Generic[T]):
    """An attribute of `Result`: the form with a certain media type."""

    def __init__(self, media_type: str, read: Callable[[Result, str], T], doc: str | None = None) -> None:
        super().__init__(lambda result: read(result, media_type))
        # Set here, because some versions of Python drop the `doc` of a subclass.
        self.media_type, self.__doc__ = media_type, doc

    if TYPE_CHECKING:

        def __get__(self, result: Any, kind: type | None = None, /) -> T:  # type: ignore[override]
            """A `property` returns `Any`."""


def _text(result: Result, media_type: str) -> str | None:
    form = result._data.get(media_type)
    return form if form is None or isinstance(form, str) else _values.safe_repr(form)


def _base64(result: Result, media_type: str) -> str | None:
    raw = result.raw(media_type)
    return None if raw is None else base64.b64encode(raw).decode("ascii")


def _json(result: Result, media_type: str) -> Any:
    form = result._data.get(media_type)
    if not isinstance(form, str):
        return form
    try:
        _values.check_json(form.encode("utf-8", "surrogatepass"))
        return json.loads(form, parse_int=_integer)
    except (ValueError, RecursionError):
        return form


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError("a number of too many digits")
    return int(text)


class Result:
    """A display of a cell, in one or more forms. An attribute is `None` if that form is missing.

    The attributes are those of E2B's `Result`. All forms come from the guest: their HTML, SVG and
    JavaScript are as untrusted as its code. A notebook shows them only where they cannot run.
    """

    __slots__ = ("_data", "is_main_result")

    def __init__(self, data: Mapping[str, Any], *, is_main_result: bool = False) -> None:
        self._data = dict(data)
        self.is_main_result = is_main_result
        """Whether this is the value of the cell's last expression."""

    text = _Form("text/plain", _text)
    html = _Form("text/html", _text)
    markdown = _Form("text/markdown", _text)
    svg = _Form("image/svg+xml", _text)
    png = _Form("image/png", _base64, "The image in base64.")
    jpeg = _Form("image/jpeg", _base64, "The image in base64.")
    pdf = _Form("application/pdf", _base64, "The document in base64.")
    latex = _Form("text/latex", _text)
    json = _Form("application/json", _json)
    javascript = _Form("application/javascript", _text)
    data = _Form(
        "application/vnd.sandfork.data+json",
        _json,
        "Data of a table or the like, if the code displays this media type itself.",
    )
    chart = _Form(
        "application/vnd.sandfork.chart+json",
        _json,
        "Data of a plot, if the code displays this media type itself.",
    )

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
        """Returns a form's bytes; text is encoded as UTF-8. `None` if the form is missing or malformed."""
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
        """Returns the names of the attributes that are not `None`, and the media types of `extra`."""
        return [_ATTRIBUTES.get(name, name) for name in self._data]

    def __getitem__(self, name: str) -> Any:
        """Returns a form by its attribute name or its media type."""
        if name in _TYPES:
            return getattr(self, name)
        return self._data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.formats())

    def __repr__(self) -> str:
        if self.text is not None:
            return f"Result({harmless(shortened(self.text, _LONGEST_TEXT))})"
        return f"Result(formats: {', '.join(self.formats())})"

    def _repr_html_(self) -> str:
        return _html.result(self)

    def _plain(self, name: str) -> Any:
        """Returns a form as it was received."""
        return self._data.get(_TYPES.get(name, name))


_TYPES = {name: form.media_type for name, form in vars(Result).items() if isinstance(form, _Form)}
_ATTRIBUTES = {media_type: name for name, media_type in _TYPES.items()}


def decoded(header: Mapping[str, Any], buffers: Sequence[memoryview]) -> Result:
    """Decodes the result in a `display` message. Forms come from the guest: forms that are malformed, have no
    valid media type, or are neither text nor bytes, are omitted."""
    decoder = _values.Decoder(buffers)
    forms: dict[str, Any] = {}
    for media_type, tree in header["data"].items():
        if not _MEDIA_TYPE.fullmatch(media_type):
            continue
        if type(tree) is str or (type(tree) is dict and tree.get("type") in _FORMS):
            try:
                forms[media_type] = decoder.decode(tree)
            except ValueError:
                continue
    return Result(forms, is_main_result=header.get("main") is True)

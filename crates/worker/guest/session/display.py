"""Sends the displays of a cell: an object's notebook forms by media type."""

import sys
from os import urandom

from .. import values, wire
from ..cell import clean
from .shared import NotPassed, pack

# Maximum bytes of one form, and of a cell's displays. The supervisor ends a cell that evades the second
# bound.
MAX_BYTES = 16 << 20
MAX_DISPLAYED = 64 << 20
# The overhead of a display in bytes. The supervisor counts half of it.
OF_A_DISPLAY = 2 << 10
MAX_FORMS = 32
# Types whose text form suffices, so that as a cell's value they need no display.
PLAIN = frozenset(
    (type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set)
    + (frozenset, range, type(Ellipsis), type(NotImplemented))
)
# Media types by the object's method. A JPEG is used only if there is no lossless image.
METHODS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_pdf_": "application/pdf",
    "_repr_latex_": "text/latex",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
}
BINARY = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


class DisplayLimit(RuntimeError):
    """A cell displays more than the limit allows."""


DisplayLimit.__module__ = "sandfork_host"


class Displays:
    def __init__(self, link, interrupts, tools):
        self.link = link
        self.interrupts = interrupts
        self.tools = tools
        # Functions of other modules that take an object and return its forms as a dict, or `None`.
        self.formatters = []
        # The running cell, and the bytes that it has displayed.
        self.displayed = 0, 0

    def display(self, *objects, include=None, exclude=None, raw=False, display_id=None, **_):
        """Displays objects to the caller of this sandbox, as in a notebook. Returns a handle for a
        `display_id`."""
        self.tools.require_link()
        for value in objects:
            if raw and type(value) is dict:
                self.show({mime: form for mime, form in value.items() if form is not None})
                continue
            forms = self.formatted(value)
            if forms is None and show_itself(value):
                continue
            if forms is None:
                forms = self.forms_of(value)
            if include is not None:
                forms = {mime: forms[mime] for mime in forms if mime in include}
            if exclude is not None:
                forms = {mime: forms[mime] for mime in forms if mime not in exclude}
            self.show(forms)
        return None if display_id is None else Handle(self.display, display_id)

    def show_value(self, value):
        """Displays the value of a cell's trailing expression."""
        # Formatters come first: a plotly figure displays itself as text if it finds no notebook.
        forms = self.formatted(value)
        if forms is None:
            if show_itself(value):
                return
            forms = self.forms_of(value)
        self.show(forms, main=True)

    def formatted(self, value):
        """Returns the forms that a formatter creates for an object, or `None`."""
        return next(filter(None, (formatter(value) for formatter in self.formatters)), None)

    def forms_of(self, value):
        """Returns the forms that an object's own methods create."""
        forms = {"text/plain": values.safe_repr(value)}
        bundle = form(value, "_repr_mimebundle_")
        if type(bundle) is dict:
            return {**forms, **bundle}
        for name, mime in METHODS.items():
            if mime == "image/jpeg" and "image/png" in forms:
                continue
            made = form(value, name)
            if made is not None:
                forms[mime] = made
        return forms

    def show(self, forms, main=False):
        encoder = values.Encoder()
        data = {}
        for mime, made in bounded(forms).items():
            data[mime] = encoder.encode(made)
        if not data:
            return
        header = {"kind": "display", "id": self.interrupts.cell, "data": data, "main": main}
        self.count(header, encoder.buffers)
        # Earlier output is sent before the display.
        flush_output()
        self.interrupts.shut()
        try:
            self.send(header, encoder.buffers)
        finally:
            self.interrupts.open()

    def count(self, header, buffers):
        """Counts the size of a display. Raises `DisplayLimit` if it is too much for a cell."""
        cell, displayed = self.displayed
        if cell != self.interrupts.cell:
            displayed = 0
        _, length = values.layout(map(len, buffers))
        displayed += OF_A_DISPLAY + len(wire.dumps(header).encode("utf-8", "replace")) + length
        if displayed > MAX_DISPLAYED:
            raise DisplayLimit("a cell may display %d MiB: write the rest to files" % (MAX_DISPLAYED >> 20))
        self.displayed = self.interrupts.cell, displayed

    def send(self, header, buffers):
        try:
            self.link.send(header, pack(buffers))
        except NotPassed as error:
            shown = "<%s, not passed: %s>" % (", ".join(header["data"]), error.strerror)
            header.pop("blob", None)
            header["data"] = {"text/plain": shown}
            self.link.send(header)


class Handle:
    """The result of `display` for a `display_id`. A display that was sent cannot change: an update is a new
    one."""

    def __init__(self, show, display_id):
        self.show = show
        self.display_id = urandom(16).hex() if display_id is True else display_id

    def display(self, obj, **options):
        self.show(obj, **options)

    update = display

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id


def show_itself(value):
    """Lets an object display itself through `display`. Returns whether it did."""
    method = method_of(value, "_ipython_display_")
    if method is None:
        return False
    try:
        method()
    except Exception:
        return False
    return True


def form(value, name):
    method = method_of(value, name)
    if method is None:
        return None
    try:
        made = method(include=None, exclude=None) if name == "_repr_mimebundle_" else method()
    except Exception:
        # As in a notebook, a form that raises does not hide the others.
        return None
    # A form may come with metadata, which is not used.
    return made[0] if type(made) is tuple and len(made) == 2 else made


def method_of(value, name):
    """Returns a method that the object's class declares. An object that has every attribute declares none."""
    try:
        if issubclass(type(value), type) or getattr(type(value), name, None) is None:
            return None
        method = getattr(value, name)
    except Exception:
        return None
    return method if callable(method) else None


def plain_form(mime, made):
    """Returns a form as text or bytes."""
    if mime in BINARY and isinstance(made, str):
        from binascii import a2b_base64

        try:
            return a2b_base64(made)
        except ValueError:
            return str.__str__(made)
    if isinstance(made, str):
        return str.__str__(made)
    if isinstance(made, (bytes, bytearray, memoryview)):
        return bytes(made)
    from json import dumps

    try:
        return dumps(made)
    except Exception:
        return values.safe_repr(made)


def bounded(forms):
    """Returns the forms to send, as text or bytes. The text form names others that are too large."""
    kept, reasons = {}, []
    for mime, made in list(forms.items())[:MAX_FORMS]:
        if type(mime) is not str or len(mime) > values.MAX_NAME:
            continue
        mime, made = clean(mime), plain_form(mime, made)
        if mime == "text/plain":
            kept[mime] = made if len(made) <= values.MAX_REPR else values.cut(made, values.MAX_REPR)
        elif len(made) <= MAX_BYTES:
            kept[mime] = made
        else:
            reasons.append("<%s of %d bytes, more than the %d that are shown>" % (mime, len(made), MAX_BYTES))
    if reasons:
        text = kept.get("text/plain", "")
        text = text if isinstance(text, str) else text.decode("utf-8", "replace")
        kept["text/plain"] = "\n".join(filter(None, (text, *reasons)))
    return kept


def flush_output():
    try:
        sys.stdout.flush()
    except Exception:
        # The guest has replaced the stream.
        pass

"""Provides the caller's functions as functions of the guest: globals of `__main__` when the caller sends
them, and always attributes of the module `sandfork_host`."""

import builtins
import sys
from itertools import count
from os import getpid

from .. import values
from ..report import safe_str
from .display import flush_output
from .shared import NotPassed, pack, unpack

NAME = "sandfork_host"
# Maximum arguments of one call, which keeps a header within its bounds.
MAX_ARGUMENTS = 1000
# Copied on import, so that changes by the guest have no effect.
EXCEPTIONS = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception)
}


class ToolError(RuntimeError):
    """A host tool raised an exception of a class that is not a builtin. An instance is also of the builtin
    base class, so that code that catches that class catches it."""

    def __str__(self):
        # The method of the builtin class may need attributes that were not transferred.
        return BaseException.__str__(self)


ToolError.__module__ = NAME


class Tools:
    def __init__(self, link, interrupts):
        self.link = link
        self.interrupts = interrupts
        self.worker = getpid()
        self.numbers = count(1)
        self.module = type(sys)(NAME, "Functions of the program that runs this sandbox.")
        self.module.ToolError = ToolError
        sys.modules[NAME] = self.module

    def define(self, declared, namespace):
        for tool in declared:
            function = self.function(tool)
            setattr(self.module, tool["name"], function)
            namespace[tool["name"]] = function

    def function(self, declared):
        name, ends_cell = declared["name"], declared.get("ends_cell", False)

        def tool(*args, **kwargs):
            return self.call(name, args, kwargs, ends_cell)

        # In the docstring, as for C functions, because `inspect` accepts a signature only as an object.
        signature = declared.get("signature")
        parts = [name + signature if signature else "", declared.get("doc", "")]
        tool.__doc__ = "\n\n".join(filter(None, parts))
        tool.__name__ = tool.__qualname__ = name
        tool.__module__ = NAME
        return tool

    def call(self, name, args, kwargs, ends_cell):
        self.require_link()
        cell = self.interrupts.cell
        if ends_cell and self.interrupts.answered():
            self.interrupts.end_cell(cell, None)
        number = next(self.numbers)
        encoder = values.Encoder()
        header = {
            "kind": "call",
            "id": cell,
            "call": number,
            "tool": name,
            **encode_arguments(encoder, args, kwargs),
        }
        # Earlier output must reach the caller before the call.
        flush_output()
        self.interrupts.shut()
        try:
            try:
                answered = self.link.call(number, header, pack(encoder.buffers))
            except NotPassed as error:
                message = "the arguments of %s cannot be passed: %s" % (name, safe_str(error))
                raise RuntimeError(message) from None
            answer, payload, passed = answered
            buffers = unpack(answer.get("blob"), payload, passed)
            value = values.Decoder(buffers).decode(answer.get("value"))
        finally:
            self.interrupts.open()
        if answer.get("error") is not None:
            raise host_exception(answer["error"]) from None
        if ends_cell:
            self.interrupts.end_cell(cell, value)
        return value

    def require_link(self):
        if getpid() != self.worker:
            raise RuntimeError(
                "host tools and displays belong to the process that the session started, not to "
                "those that it forked: use threads, or return the result to it"
            )


def encode_arguments(encoder, args, kwargs):
    if len(args) + len(kwargs) > MAX_ARGUMENTS:
        raise TypeError("a host tool takes at most %d arguments" % MAX_ARGUMENTS)
    named = {}
    for name, value in kwargs.items():
        if len(name) > values.MAX_NAME or not values.is_unicode(name):
            raise TypeError("the name of an argument is too long or not valid Unicode")
        named[str.__str__(name)] = encoder.encode(value)
    return {"args": [encoder.encode(value) for value in args], "kwargs": named}


def host_exception(error):
    """Returns an exception of the builtin class of that name if it has the same message, otherwise a
    `ToolError`."""
    name, message = error["name"], error["message"]
    kind = EXCEPTIONS.get(name)
    # The message of a `KeyError` is its argument's repr. An `OSError` gets no errno, which would look like a
    # refusal of the sandbox.
    for argument in (message, message[1:-1]) if kind is not None else ():
        try:
            made = kind(argument)
            if str(made) == message:
                return made
        except Exception:
            # The class requires other arguments.
            break
    text = "%s: %s" % (name, message) if message else name
    try:
        return derived_from(EXCEPTIONS.get(error.get("base", name), ToolError))(text)
    except Exception:
        # For example an exception group, which requires other arguments.
        return ToolError(text)


def derived_from(base):
    if issubclass(ToolError, base):
        return ToolError
    return type(ToolError.__name__, (ToolError, base), {"__module__": NAME})

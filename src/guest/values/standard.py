"""The types of the standard library that cross: both ways."""

from __future__ import annotations

import re
import sys

from .bounds import is_unicode

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime
    import decimal
    import fractions
    import pathlib
    import uuid
    from typing import Any

    from .decode import Decode, Decoder
    from .encode import Encoder
    from .kinds import Encode, Tree

# Digits in which numbers of any size are written: Python's own bound for them is 4,300, and where
# it has none, reading takes time by the square of their count.
MAX_DECIMAL = 4300
# Of a file of the time zone database: no way out of its directory.
ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,3}")
FRACTION = re.compile(r"(-?[0-9]{1,4300})/([0-9]{1,4300})")
UUID = re.compile(r"[0-9a-f]{32}")
DECIMAL = re.compile(r"-?([0-9.]{1,4300}(E[+-]?[0-9]{1,20})?|Infinity|s?NaN[0-9]{0,4000})")


def _decimal(encoder: Encoder, value: decimal.Decimal, depth: int, key: bool) -> Tree:
    decimal = sys.modules["decimal"].Decimal
    return {"type": "decimal", "text": _matching(DECIMAL, decimal.__str__(value))}


def _fraction(encoder: Encoder, value: fractions.Fraction, depth: int, key: bool) -> Tree:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > 3 * MAX_DECIMAL:
        raise ValueError("too long to be written")
    return {"type": "fraction", "text": f"{value.numerator}/{value.denominator}"}


def _date(encoder: Encoder, value: datetime.date, depth: int, key: bool) -> Tree:
    return {"type": "date", "text": value.isoformat()}


def _time(encoder: Encoder, value: datetime.time, depth: int, key: bool) -> Tree:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise ValueError("a zone without a date has no offset")
    return {"type": "time", "text": value.isoformat(), "fold": value.fold}


def _datetime(encoder: Encoder, value: datetime.datetime, depth: int, key: bool) -> Tree:
    stamp = sys.modules["datetime"].datetime.isoformat(value)
    tree = {"type": "datetime", "text": stamp, "fold": value.fold}
    zone = getattr(value.tzinfo, "key", None)
    if type(zone) is str and ZONE.fullmatch(zone):
        tree["zone"] = zone
    return tree


def _timedelta(encoder: Encoder, value: datetime.timedelta, depth: int, key: bool) -> Tree:
    parts = {name: getattr(value, name) for name in ("days", "seconds", "microseconds")}
    return {"type": "timedelta", **parts}


def _timezone(encoder: Encoder, value: datetime.timezone, depth: int, key: bool) -> Tree:
    offset = value.utcoffset(None)
    if offset.microseconds:
        raise ValueError("an offset of less than a second")
    tree: Tree = {"type": "timezone", "seconds": offset.days * 86400 + offset.seconds}
    name = value.tzname(None)
    if name != type(value)(offset).tzname(None):
        tree["name"] = encoder.text(name)
    return tree


def _path(encoder: Encoder, value: pathlib.PurePath, depth: int, key: bool) -> Tree:
    text = str(value)
    if not is_unicode(text):
        raise ValueError("a path that is no text")
    return {"type": "path", "text": encoder.text(text)}


def _uuid(encoder: Encoder, value: uuid.UUID, depth: int, key: bool) -> Tree:
    return {"type": "uuid", "hex": _matching(UUID, value.hex)}


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if pattern.fullmatch(text) is None:
        raise ValueError("not in the notation that is read")
    return text


ENCODERS: dict[str, Encode] = {
    "decimal.Decimal": _decimal,
    "fractions.Fraction": _fraction,
    "datetime.date": _date,
    "datetime.time": _time,
    "datetime.datetime": _datetime,
    "datetime.timedelta": _timedelta,
    "datetime.timezone": _timezone,
    "uuid.UUID": _uuid,
}


def encoder_of(kind: type) -> Encode | None:
    """For paths, whose classes differ from one Python to the next, and for subclasses."""
    pathlib = sys.modules.get("pathlib")
    if pathlib is not None and issubclass(kind, pathlib.PurePath):
        return _path
    # A datetime is a date.
    for name in ("datetime.datetime", "datetime.date", "decimal.Decimal", "fractions.Fraction"):
        module, _, base = name.partition(".")
        known = getattr(sys.modules.get(module), base, None)
        if type(known) is not None and isinstance(known, type) and issubclass(kind, known):
            return ENCODERS[name]
    return None


def _read_decimal(decoder: Decoder, tree: Tree, depth: int) -> Any:
    from decimal import Decimal

    return Decimal(_matching(DECIMAL, decoder.field(tree, "text", str)))


def _read_fraction(decoder: Decoder, tree: Tree, depth: int) -> Any:
    found = FRACTION.fullmatch(decoder.field(tree, "text", str))
    if found is None or not int(found[2]):
        raise ValueError("a fraction is not written as one")
    from fractions import Fraction

    return Fraction(int(found[1]), int(found[2]))


def _read_date(decoder: Decoder, tree: Tree, depth: int) -> Any:
    from datetime import date

    return date.fromisoformat(decoder.field(tree, "text", str))


def _read_time(decoder: Decoder, tree: Tree, depth: int) -> Any:
    from datetime import time

    text, fold = decoder.field(tree, "text", str), decoder.field(tree, "fold", int)
    return time.fromisoformat(text).replace(fold=fold)


def _read_datetime(decoder: Decoder, tree: Tree, depth: int) -> Any:
    from datetime import datetime

    text, fold = decoder.field(tree, "text", str), decoder.field(tree, "fold", int)
    value = datetime.fromisoformat(text).replace(fold=fold)
    if "zone" not in tree:
        return value
    from zoneinfo import ZoneInfo

    zone = _matching(ZONE, decoder.field(tree, "zone", str))
    try:
        return value.replace(tzinfo=ZoneInfo(zone))
    except Exception:
        # This side does not know it; the offset tells which moment is meant.
        return value


def _read_timedelta(decoder: Decoder, tree: Tree, depth: int) -> Any:
    from datetime import timedelta

    names = ("days", "seconds", "microseconds")
    return timedelta(**{name: decoder.field(tree, name, int) for name in names})


def _read_timezone(decoder: Decoder, tree: Tree, depth: int) -> Any:
    from datetime import timedelta, timezone

    offset = timedelta(seconds=decoder.field(tree, "seconds", int))
    if "name" in tree:
        return timezone(offset, decoder.inner(tree, "name", str, depth))
    return timezone(offset)


def _read_path(decoder: Decoder, tree: Tree, depth: int) -> Any:
    from pathlib import PurePosixPath

    return PurePosixPath(decoder.inner(tree, "text", str, depth))


def _read_uuid(decoder: Decoder, tree: Tree, depth: int) -> Any:
    from uuid import UUID as Uuid

    return Uuid(_matching(UUID, decoder.field(tree, "hex", str)))


DECODERS: dict[str, Decode] = {
    "decimal": _read_decimal,
    "fraction": _read_fraction,
    "date": _read_date,
    "time": _read_time,
    "datetime": _read_datetime,
    "timedelta": _read_timedelta,
    "timezone": _read_timezone,
    "path": _read_path,
    "uuid": _read_uuid,
}

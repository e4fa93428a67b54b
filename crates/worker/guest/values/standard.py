"""Encodes and decodes the supported types of the standard library."""

from __future__ import annotations

import re
import sys

from .bounds import MAX_TEXT, is_unicode

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

# Maximum decimal digits of a number. Python's own bound is 4,300; without it, parsing takes time quadratic in
# the number of digits.
MAX_DECIMAL = 4300
# The name of a file in the time zone database. It cannot leave the database's directory.
ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(/[A-Za-z][A-Za-z0-9_+-]{0,31}){0,2}")
OFFSET = re.compile(r"(?:UTC)?([+-])([0-9]{2}):([0-5][0-9])(?::([0-5][0-9]))?")
# The number of characters of a path whose reading costs as much as one value of a tree.
PATH = 64
# The cost of searching all directories for a zone's file.
ZONE_WORK = 1000
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
        raise ValueError("an offset with a fraction of a second")
    tree: Tree = {"type": "timezone", "seconds": offset.days * 86400 + offset.seconds}
    name = value.tzname(None)
    if name != type(value)(offset).tzname(None):
        tree["name"] = encoder.text(name)
    return tree


def _path(encoder: Encoder, value: pathlib.PurePath, depth: int, key: bool) -> Tree:
    text = str(value)
    if not is_unicode(text) or len(text) > MAX_TEXT:
        raise ValueError("a path that is not Unicode, or too long")
    return {"type": "path", "text": encoder.text(text)}


def _uuid(encoder: Encoder, value: uuid.UUID, depth: int, key: bool) -> Tree:
    return {"type": "uuid", "hex": _matching(UUID, value.hex)}


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if pattern.fullmatch(text) is None:
        raise ValueError("not in a supported notation")
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
    """Returns the encoder of paths, whose classes differ between Python versions, and of subclasses."""
    pathlib = sys.modules.get("pathlib")
    if pathlib is not None and issubclass(kind, pathlib.PurePath):
        return _path
    # `datetime` is checked first, because it is a subclass of `date`.
    for name in ("datetime.datetime", "datetime.date", "decimal.Decimal", "fractions.Fraction"):
        module, _, base = name.partition(".")
        known = getattr(sys.modules.get(module), base, None)
        if isinstance(known, type) and issubclass(kind, known):
            return ENCODERS[name]
    return None


def _read_decimal(decoder: Decoder, tree: Tree, depth: int) -> Any:
    from decimal import Decimal

    return Decimal(_matching(DECIMAL, decoder.field(tree, "text", str)))


def _read_fraction(decoder: Decoder, tree: Tree, depth: int) -> Any:
    text = decoder.field(tree, "text", str)
    found = FRACTION.fullmatch(text)
    if found is None:
        raise ValueError("a fraction is malformed")
    # Parsing and reducing a fraction takes time quadratic in its digits.
    decoder.spend(len(text) ** 2 >> 15)
    if not int(found[2]):
        raise ValueError("a fraction is malformed")
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
    zone = zone_of(decoder, _matching(ZONE, decoder.field(tree, "zone", str)))
    # If the zone is not known here, the offset still determines the point in time.
    return value if zone is None else value.replace(tzinfo=zone)


def zone_of(decoder: Decoder, name: str) -> Any:
    """Returns a time zone of the database, or a fixed offset; `None` for an unknown name."""
    if name not in decoder.zones:
        # The result is cached, because an unknown name is searched for in all directories.
        decoder.zones[name] = _zone(decoder, name)
    return decoder.zones[name]


def _zone(decoder: Decoder, name: str) -> Any:
    from datetime import timedelta, timezone

    offset = OFFSET.fullmatch(name)
    if offset is not None:
        hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
        span = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-span if offset[1] == "-" else span)
    if ZONE.fullmatch(name) is None:
        return None
    decoder.spend(ZONE_WORK)
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except Exception:
        return None


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

    text = decoder.inner(tree, "text", str, depth)
    if len(text) > MAX_TEXT:
        # A component of a path takes more memory than its encoded characters.
        raise ValueError("a path is too long for any system")
    decoder.spend(len(text) // PATH)
    return PurePosixPath(text)


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

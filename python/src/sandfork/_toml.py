"""Writes the subset of TOML that a policy needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(document: Mapping[str, Any]) -> str:
    """Serializes a document of strings, numbers, booleans, lists, and tables of these as TOML."""
    return "\n".join(_table(document, ())) + "\n"


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    lines = []
    inner = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner.append((key, value))
        else:
            lines.append(f"{_key(key)} = {_value(value)}")
    if path and (lines or not inner):
        lines.insert(0, f"[{'.'.join(map(_key, path))}]")
    for key, value in inner:
        if lines:
            lines.append("")
        lines.extend(_table(value, (*path, key)))
    return lines


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        # A table within a list is written inline.
        return f"{{ {', '.join(f'{_key(key)} = {_value(item)}' for key, item in value.items())} }}"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(text: str) -> str:
    # JSON's escapes are valid in TOML. TOML also requires DEL to be escaped, and has no surrogates.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

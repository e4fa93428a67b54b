"""Converts smolagents' `additional_authorized_imports` to a policy."""

from __future__ import annotations

from collections.abc import Iterable

from smolagents.utils import BASE_BUILTIN_MODULES


def authorized_imports(additional: Iterable[str]) -> list[str]:
    """The imports that code may use: smolagents' base modules and `additional`."""
    return sorted({*BASE_BUILTIN_MODULES, *additional})


def import_patterns(authorized: Iterable[str]) -> list[str] | None:
    """The policy's `imports.allow`, or `None` where every import is authorized."""
    patterns: set[str] = set()
    for name in authorized:
        parts = name.split(".")
        if parts[0] == "*":
            return None
        if "*" in parts:
            parts = parts[: parts.index("*") + 1]
        patterns.add(".".join(parts))
    return sorted(patterns)


def top_level_names(names: Iterable[str]) -> list[str]:
    """The packages that these imports require."""
    return sorted({name.split(".")[0] for name in names} - {"*"})

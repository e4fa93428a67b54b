"""Fixtures."""

from __future__ import annotations

from ..integration.conftest import doctor, real

__all__ = ["doctor", "real"]

"""Converts smolagents' values to values that can be sent to a guest."""

from __future__ import annotations

import sys
from typing import Any

import PIL.Image
from smolagents.agent_types import AgentType

_ATOMS = frozenset({type(None), bool, int, float, str, bytes})


def to_plain(value: Any) -> Any:
    """Removes smolagents' wrappers (`AgentText`, `AgentImage`, `AgentAudio`) from a value, and from the items
    of lists, tuples and dicts. A torch tensor, which an `AgentAudio` contains, becomes a numpy array."""
    return _plain(value, {})


def _plain(value: Any, seen: dict[int, Any]) -> Any:
    if type(value) in _ATOMS:
        return value
    if isinstance(value, AgentType):
        value = value.to_raw()
        if isinstance(value, PIL.Image.Image):
            # An image of a file would keep the file open until its pixels are read.
            value.load()
    if type(value) in (list, tuple, dict):
        return _plain_container(value, seen)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    return value


def _plain_container(value: Any, seen: dict[int, Any]) -> Any:
    if id(value) in seen:
        return seen[id(value)]
    # A container that contains itself is unchanged; the encoder reports the cycle.
    seen[id(value)] = value
    if type(value) is dict:
        plain: Any = {key: _plain(item, seen) for key, item in value.items()}
    else:
        plain = type(value)(_plain(item, seen) for item in value)
    seen[id(value)] = plain
    return plain

from __future__ import annotations

import sys
import types
from typing import Any

import PIL.Image
import pytest
from smolagents.agent_types import AgentImage, AgentText

from sandfork.smolagents._values import to_plain


def test_wrappers_are_removed() -> None:
    image = PIL.Image.new("RGB", (2, 2), "red")
    plain = to_plain({"a": [AgentText("x"), (AgentImage(image), 1)]})
    assert plain == {"a": ["x", (image, 1)]}
    assert type(plain["a"][0]) is str
    assert plain["a"][1][0] is image


def test_an_image_that_is_a_path_is_opened(tmp_path: Any) -> None:
    path = str(tmp_path / "x.png")
    PIL.Image.new("L", (3, 1), 7).save(path)
    plain = to_plain(AgentImage(path))
    assert not isinstance(plain, AgentImage)
    assert plain.size == (3, 1)


def test_a_container_that_holds_itself() -> None:
    endless: list[Any] = []
    endless += [endless, endless, AgentText("x")]
    plain = to_plain(endless)
    assert plain[2] == "x"
    assert plain[0] is endless


def test_shared_references_stay_shared() -> None:
    shared = [AgentText("x")]
    for _ in range(40):
        shared = [shared, shared]  # type: ignore[list-item]
    plain = to_plain(shared)
    assert plain[0] is plain[1]


def test_a_tensor_is_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        def detach(self) -> Tensor:
            return self

        cpu = detach

        def numpy(self) -> str:
            return "the array"

    torch = types.ModuleType("torch")
    torch.Tensor = Tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert to_plain([Tensor()]) == ["the array"]

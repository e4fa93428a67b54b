"""Transfer of values. Large values are passed as files, which the reader maps."""

from __future__ import annotations

import copy
import mmap
import os
import pickle

import pytest

import sandfork
from sandfork import Sandbox, _blobs

from .support.descriptors import assert_closed_since, opened
from .support.fake import FakeSupervisor

numpy = pytest.importorskip("numpy")
pandas = pytest.importorskip("pandas")


def test_placeholder_describes_its_value() -> None:
    array = sandfork.Opaque("numpy.ndarray", "<array of shape (3,): numpy is not installed in the sandbox>")
    with pytest.raises(AttributeError, match="no attribute 'mean': it stands for .*numpy is not installed"):
        array.mean()
    assert not hasattr(array, "__array__")
    assert copy.copy(array) == pickle.loads(pickle.dumps(array)) == array


@pytest.mark.parametrize("size", [0, 1, 1000, 64 * 1024, 64 * 1024 + 1, 5 << 20])
def test_bytes_of_any_length_are_transferred_both_ways(fake: FakeSupervisor, size: int) -> None:
    data = os.urandom(size)
    with Sandbox(variables={"first": data}, tools={"same": lambda x: x}) as sbx:
        assert sbx.run("first").value == data
        sbx.set(second=[data, data])
        assert sbx.run("same(second)").value == [data, data]
        before = opened()
        sbx.run("second")
        assert_closed_since(before)


def test_arrays_are_mapped_writable(fake: FakeSupervisor) -> None:
    with Sandbox() as sbx:
        sbx.set(large=numpy.arange(100_000.0), small=numpy.arange(3))
        large, small = sbx.run("large").value, sbx.run("small").value
    assert isinstance(_owner(large), mmap.mmap)
    for array in (large, small):
        array[0] = 7
        assert array[0] == 7
    assert large[99_999] == 99_999.0


def _owner(array: object) -> object:
    while getattr(array, "base", None) is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def test_frames_are_transferred(fake: FakeSupervisor) -> None:
    frame = pandas.DataFrame({"a": range(30_000), "b": ["x"] * 30_000})
    with Sandbox(variables={"frame": frame}) as sbx:
        pandas.testing.assert_frame_equal(sbx.get("frame"), frame)


def test_value_larger_than_the_session_memory_is_rejected(fake: FakeSupervisor) -> None:
    huge = numpy.zeros(9 << 20)
    with Sandbox(tools={"huge": lambda: huge}) as sbx:
        before = opened()
        with pytest.raises(sandfork.ValueTooLarge, match="has room for 67108864: raise limits.memory"):
            sbx.set(huge=huge)
        error = sbx.run("huge()").error
        assert error is not None
        assert error.name == "ValueTooLarge"
        assert_closed_since(before)


def test_cyclic_or_hostile_values_do_not_harm_the_host(fake: FakeSupervisor) -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    cyclic: list[object] = [1]
    cyclic.append(cyclic)
    with Sandbox() as sbx:
        sbx.set(cyclic=cyclic, hostile=Hostile(), deep=_deep(5000))
        assert sbx.get("cyclic")[0] == 1
        assert "repr raises" in sbx.get("hostile").repr


def _deep(levels: int) -> list[object]:
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


def test_a_file_is_sealed(fake: FakeSupervisor) -> None:
    outgoing = _blobs.pack([b"x" * 100_000], 1 << 30)
    assert outgoing is not None
    assert outgoing.descriptor is not None
    with pytest.raises(PermissionError):
        os.ftruncate(outgoing.descriptor, 0)
    with pytest.raises(PermissionError):
        os.pwrite(outgoing.descriptor, b"y", 0)
    outgoing.close()
    outgoing.close()


def test_kernels_without_the_newest_seal_serve_too(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.memfd_create

    def older(name: str, flags: int) -> int:
        if flags & 0x0008:
            raise OSError(22, "Invalid argument")
        return real(name, flags)

    monkeypatch.setattr(os, "memfd_create", older)
    outgoing = _blobs.pack([b"x" * 100_000], 1 << 30)
    assert outgoing is not None
    outgoing.close()

"""Lays out a message's buffers in its blob: each at a multiple of 64 bytes, with zeros in the gaps."""

from __future__ import annotations

from .bounds import I64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Buffer = bytes | bytearray | memoryview

ALIGNMENT = 64


def layout(lengths: Iterable[int]) -> tuple[list[int], int]:
    """Returns the offset of each buffer, and the total length. Raises `ValueError` for an invalid length."""
    offsets, end = [], 0
    for length in lengths:
        if type(length) is not int or not 0 <= length < I64:
            raise ValueError("the length of a buffer is not a number of bytes")
        start = end + -end % ALIGNMENT
        offsets.append(start)
        end = start + length
    return offsets, end


def split(blob: memoryview, lengths: Iterable[int]) -> list[memoryview]:
    """Returns the buffers in a blob. Raises `ValueError` if the blob's size does not match."""
    lengths = list(lengths)
    offsets, total = layout(lengths)
    if total != blob.nbytes:
        raise ValueError(f"buffers of {total} bytes are in a blob of {blob.nbytes}")
    return [blob[start : start + length] for start, length in zip(offsets, lengths)]


def pieces(buffers: Iterable[Buffer]) -> list[Buffer]:
    """Returns the pieces of a blob, in the order in which they are written."""
    parts: list[Buffer] = []
    end = 0
    for buffer in buffers:
        gap = -end % ALIGNMENT
        if gap:
            parts.append(bytes(gap))
        parts.append(buffer)
        end += gap + len(buffer)
    return parts

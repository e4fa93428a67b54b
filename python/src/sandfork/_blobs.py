"""The binary part of messages: buffers in the payload, or in a sealed memfd.

A large array is written to the memfd once and mapped by its reader. It never passes through the socket.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterable, Sequence
from typing import Any

from . import _values
from ._exceptions import ProtocolError, ValueTooLarge
from ._frames import Decoder, Frame

# Bounds of one message.
LARGEST = 4 << 30

# From linux/memfd.h. The os module has it since Python 3.13. Kernels before 6.3 reject it.
_MFD_NOEXEC_SEAL = 0x0008
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class OutgoingValue:
    """The buffers of an outgoing message: header fields, and a payload or a file."""

    __slots__ = ("descriptor", "field", "payload")

    def __init__(self, field: dict[str, Any], payload: bytes, descriptor: int | None = None) -> None:
        self.field = field
        self.payload = payload
        self.descriptor = descriptor

    def close(self) -> None:
        """Closes the file, after it was sent or if it is not sent."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


NO_BUFFERS = OutgoingValue({}, b"")


def pack(buffers: Sequence[Any], room: float) -> OutgoingValue:
    """Packs the buffers of a message.

    `room` is the reader's available memory in bytes. Larger buffers are rejected before anything is copied.
    """
    if not buffers:
        return NO_BUFFERS
    lengths = [len(buffer) for buffer in buffers]
    _, total = _values.layout(lengths)
    if total > min(room, LARGEST):
        raise ValueTooLarge(
            f"the values take {total} bytes, and the session has room for {int(min(room, LARGEST))}: "
            "raise limits.memory, or send them as a file"
        )
    pieces = _values.pieces(buffers)
    if total <= _values.SHARED:
        return OutgoingValue({"blob": {"lengths": lengths}}, b"".join(pieces))
    return OutgoingValue({"blob": {"lengths": lengths, "passed": True}}, b"", sealed_file(pieces))


def sealed_file(pieces: Iterable[bytes | bytearray | memoryview]) -> int:
    """Creates a sealed, immutable memfd with this content (memfd_create(2)). Returns a descriptor at its
    start, which the caller owns."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        descriptor = os.memfd_create("sandfork", flags | _MFD_NOEXEC_SEAL)
    except OSError:
        descriptor = os.memfd_create("sandfork", flags)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.writelines(pieces)
        os.lseek(descriptor, 0, os.SEEK_SET)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def unpack(frame: Frame, decoder: Decoder) -> Sequence[memoryview]:
    """Returns the buffers of a received message. They are writable, and stay mapped while they are in use."""
    field = frame.header.get("blob")
    if field is None:
        return ()
    try:
        lengths = field["lengths"]
        offsets, total = _values.layout(lengths)
    except (KeyError, TypeError, ValueError):
        raise ProtocolError("the supervisor sent buffers of no known length") from None
    if field.get("passed"):
        whole = _map(decoder.take_descriptor(), total)
    elif len(frame.payload) == total:
        whole = memoryview(frame.payload)
    else:
        raise ProtocolError(f"the supervisor sent {len(frame.payload)} bytes instead of {total}")
    return [whole[offset : offset + length] for offset, length in zip(offsets, lengths)]


def discard(frame: Frame, decoder: Decoder) -> None:
    """Releases the buffers of a discarded message."""
    field = frame.header.get("blob")
    if type(field) is dict and field.get("passed"):
        os.close(decoder.take_descriptor())


def _map(descriptor: int, total: int) -> memoryview:
    try:
        # An unsealed file could shrink under the mapping, and the next access would raise SIGBUS.
        sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
        if not sealed or os.fstat(descriptor).st_size != total:
            raise ProtocolError(f"the supervisor passed a file that is not {total} sealed bytes")
        if not total:
            # mmap(2) refuses an empty mapping.
            return memoryview(bytearray())
        # A private mapping copies only the pages that the caller writes to.
        return memoryview(mmap.mmap(descriptor, total, access=mmap.ACCESS_COPY))
    except OSError as error:
        raise ProtocolError(f"the supervisor passed a file that cannot be mapped: {error}") from None
    finally:
        os.close(descriptor)

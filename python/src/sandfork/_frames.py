"""Encodes and decodes the frames of the caller link. This module does no I/O.

`docs/protocol.md` in the repository has the format: two lengths (u32, little-endian), a header (one
JSON object), a payload. One file descriptor may accompany a frame.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Callable, NamedTuple

from ._exceptions import ProtocolError, RequestError, ValueTooLarge

_LENGTHS = Struct("<II")
_PREFIX = _LENGTHS.size

# Bounds of the messages that a supervisor accepts from a caller.
MAX_HEADER_SENT = 2 << 20
_MAX_VALUES = 1 << 16
_MAX_TEXT = 1 << 20
MAX_PAYLOAD = 16 << 20
# Larger, because the supervisor's header contains the worker's header and its own fields.
_MAX_HEADER_RECEIVED = 8 << 20

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# For objects of the caller: this encoder detects cycles and reports them.
json_text = _ENCODER.encode


def _make_encoder() -> Callable[[Any], str]:
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _ENCODER.encode
    try:
        # `encode` would create this encoder for each message, which takes as long as writing the message.
        # It has no markers, which detect cycles: messages contain none.
        write = make(
            None, _ENCODER.default, json.encoder.encode_basestring, None, ":", ",", False, False, False
        )
        if "".join(write({"a": [1, None, "\n"]}, 0)) != '{"a":[1,null,"\\n"]}':
            return _ENCODER.encode
    except TypeError:
        # This Python has other internals: the public encoder is slower, with the same result.
        return _ENCODER.encode
    return lambda message: "".join(write(message, 0))


_write_json = _make_encoder()


# Large integers need no bound here: the supervisor forwards a guest's numbers as numbers only up to 64 bits.
_read_json = json.JSONDecoder().raw_decode


class Frame(NamedTuple):
    """One message. The payload is a `bytearray`, so that values that share its memory are writable.
    `header_length` is in bytes."""

    header: dict[str, Any]
    payload: bytes | bytearray
    header_length: int = 0


def encode(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """Encodes a frame. Raises `RequestError`, or `ValueTooLarge` if the header exceeds its bound."""
    try:
        text = _write_json(header).encode()
    except UnicodeEncodeError as error:
        lone = f"U+{ord(error.object[error.start]):04X}"
        raise RequestError(f"text with a lone surrogate ({lone}) cannot be sent") from None
    if len(text) > MAX_HEADER_SENT:
        raise ValueTooLarge(
            f"this {header['kind']!r} request takes {len(text)} bytes beside its binary part, more "
            f"than the {MAX_HEADER_SENT} that one may take: send it in parts"
        )
    # Shorter headers are within these bounds, because a value takes two bytes.
    if len(text) >= 2 * _MAX_VALUES:
        _check_bounds(text, header["kind"])
    return _LENGTHS.pack(len(text), len(payload)) + text + payload


def _check_bounds(header: bytes, kind: object) -> None:
    # Splitting at quotes alternates between the JSON around strings and the strings.
    parts = header.replace(b"\\\\", b"__").replace(b'\\"', b"__").split(b'"')
    around = b"".join(parts[::2])
    values = 1 + sum(map(around.count, (b",", b":", b"[", b"{")))
    if values > _MAX_VALUES or max(map(len, parts[1::2])) > _MAX_TEXT:
        raise ValueTooLarge(
            f"this {kind!r} request has {values} values, of which it may have {_MAX_VALUES}, or one of more "
            f"than {_MAX_TEXT} bytes: send it in parts"
        )


class Decoder:
    """Splits the received bytes, in pieces of any size, into frames and their descriptors."""

    __slots__ = ("_buffer", "_descriptors", "_start")

    def __init__(self) -> None:
        self._buffer: bytes | bytearray = b""
        self._start = 0
        self._descriptors: deque[int] = deque()

    def feed(self, data: bytes, descriptors: Iterable[int] = ()) -> None:
        """Adds received bytes. The decoder owns the descriptors from now on."""
        self._descriptors.extend(descriptors)
        if self._start == len(self._buffer):
            # Most messages arrive complete, so only their parts are copied.
            self._buffer, self._start = data, 0
        else:
            kept = self._buffer
            if self._start or not isinstance(kept, bytearray):
                kept = bytearray(memoryview(kept)[self._start :])
                self._start = 0
            kept += data
            self._buffer = kept

    def next_frame(self) -> Frame | None:
        """Returns the next frame, or `None` if it is incomplete. Raises `ProtocolError` if it is invalid."""
        buffer, start = self._buffer, self._start
        if len(buffer) - start < _PREFIX:
            return None
        header_length, payload_length = _LENGTHS.unpack_from(buffer, start)
        if not 0 < header_length <= _MAX_HEADER_RECEIVED or payload_length > MAX_PAYLOAD:
            raise ProtocolError(
                f"the supervisor announced a message of {header_length} and {payload_length} bytes, "
                "which is none of ours"
            )
        middle = start + _PREFIX + header_length
        end = middle + payload_length
        if len(buffer) < end:
            return None
        header = _parse(buffer[start + _PREFIX : middle])
        payload = bytearray(buffer[middle:end]) if payload_length else b""
        frame = Frame(header, payload, header_length)
        # Set last, so that an exception of a signal handler does not lose the frame.
        self._start = end
        return frame

    def rest(self) -> bytes:
        """Returns the bytes after the last returned frame."""
        return bytes(memoryview(self._buffer)[self._start :])

    def wanted(self) -> int:
        """Returns the number of missing bytes of an incomplete frame, if known; otherwise 0."""
        held = len(self._buffer) - self._start
        if held < _PREFIX:
            return 0
        header_length, payload_length = _LENGTHS.unpack_from(self._buffer, self._start)
        return max(0, _PREFIX + int(header_length) + int(payload_length) - held)

    def take_descriptor(self) -> int:
        """Removes and returns the oldest received descriptor, which the caller then owns. Raises
        `ProtocolError` if there is none."""
        if not self._descriptors:
            raise ProtocolError("the supervisor announced a file and passed none")
        return self._descriptors.popleft()

    def drop_descriptors(self, arrived: Sequence[int] = ()) -> int:
        """Closes the descriptors that were not taken, and those in `arrived`, which may not have been
        fed yet. Returns the number of closed descriptors."""
        if not self._descriptors and not arrived:
            return 0
        dropped = {*self._descriptors, *arrived}
        self._descriptors.clear()
        for descriptor in dropped:
            os.close(descriptor)
        return len(dropped)


def _parse(header: bytes | bytearray) -> dict[str, Any]:
    try:
        text = header.decode()
        parsed, end = _read_json(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the supervisor sent a header that is no JSON: {error}") from None
    if end != len(text) or type(parsed) is not dict or type(parsed.get("kind")) is not str:
        raise ProtocolError("the supervisor sent a header that is no message")
    return parsed

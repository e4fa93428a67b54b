"""The frames of the caller link: bytes in, frames out. No input or output happens here.

`docs/protocol.md` in the repository has the format: two lengths (u32, little-endian), a header (one
JSON object), a payload. A frame may have one file descriptor beside it.
"""

from __future__ import annotations

import json
import os
from collections import deque
from struct import Struct
from typing import Any, Callable, NamedTuple

from ._exceptions import ProtocolError, RequestError, ValueTooLarge

_LENGTHS = Struct("<II")
_PREFIX = _LENGTHS.size

# What a supervisor accepts of a caller.
MAX_HEADER_SENT = 2 << 20
MAX_PAYLOAD = 16 << 20
# What it says has the worker's words in it and its own.
_MAX_HEADER_RECEIVED = 8 << 20

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
# Of what the caller made himself, where a cycle is a mistake to be told of.
json_text = _ENCODER.encode


def _make_encoder() -> Callable[[Any], str]:
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _ENCODER.encode
    try:
        # What `encode` makes anew for each message, which takes as long as writing one. Without
        # markers, which find cycles: there are none in what is sent.
        write = make(
            None, _ENCODER.default, json.encoder.encode_basestring, None, ":", ",", False, False, False
        )
        if "".join(write({"a": [1, None, "\n"]}, 0)) != '{"a":[1,null,"\\n"]}':
            return _ENCODER.encode
    except TypeError:
        # A Python in which these internals have changed: slower, not different.
        return _ENCODER.encode
    return lambda message: "".join(write(message, 0))


_write_json = _make_encoder()
_read_json = json.JSONDecoder().raw_decode


class Frame(NamedTuple):
    """One message. The payload is a `bytearray` so that what is made of it can be written to."""

    header: dict[str, Any]
    payload: bytes | bytearray


def encode(header: dict[str, Any], payload: bytes = b"") -> bytes:
    """The bytes of a frame."""
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
    return _LENGTHS.pack(len(text), len(payload)) + text + payload


class Decoder:
    """Takes what arrives, in any pieces, and gives the frames and their descriptors."""

    __slots__ = ("_buffer", "_descriptors", "_start")

    def __init__(self) -> None:
        self._buffer: bytes | bytearray = b""
        self._start = 0
        self._descriptors: deque[int] = deque()

    def feed(self, data: bytes, descriptors: list[int] | None = None) -> None:
        """What arrived. The decoder owns the descriptors from here on."""
        if descriptors:
            self._descriptors.extend(descriptors)
        if self._start == len(self._buffer):
            # Most messages arrive whole: nothing is copied but their parts.
            self._buffer, self._start = data, 0
        else:
            kept = self._buffer
            if self._start or not isinstance(kept, bytearray):
                kept = bytearray(memoryview(kept)[self._start :])
                self._start = 0
            kept += data
            self._buffer = kept

    def next_frame(self) -> Frame | None:
        """The next frame, if it is there whole."""
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
        # Last, so that an exception of a signal handler on the way loses nothing.
        self._start = end
        return Frame(header, payload)

    def wanted(self) -> int:
        """How many bytes the frame that has begun lacks, as far as is known; 0 where none has."""
        held = len(self._buffer) - self._start
        if held < _PREFIX:
            return 0
        header_length, payload_length = _LENGTHS.unpack_from(self._buffer, self._start)
        return max(0, _PREFIX + int(header_length) + int(payload_length) - held)

    def in_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._start < len(self._buffer)

    def take_descriptor(self) -> int:
        """The oldest descriptor that no frame has taken yet; the taker owns it."""
        if not self._descriptors:
            raise ProtocolError("the supervisor announced a file and passed none")
        return self._descriptors.popleft()

    def drop_descriptors(self) -> int:
        """Closes those that no frame has taken; how many there were."""
        dropped = len(self._descriptors)
        while self._descriptors:
            os.close(self._descriptors.popleft())
        return dropped


def _parse(header: bytes | bytearray) -> dict[str, Any]:
    try:
        text = header.decode()
        parsed, end = _read_json(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the supervisor sent a header that is no JSON: {error}") from None
    if end != len(text) or type(parsed) is not dict or type(parsed.get("kind")) is not str:
        raise ProtocolError("the supervisor sent a header that is no message")
    return parsed

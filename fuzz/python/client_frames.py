"""The frame readers of the client and the guest: the split of the input does not matter, only one kind of error is
raised, and the Rust side reads the same frames."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from sandfork._exceptions import ProtocolError
from sandfork._frames import Decoder

_WIRE = Path(__file__).resolve().parent.parent.parent / "crates" / "worker" / "guest" / "wire.py"


class Ended(Exception):
    """The guest's process would have exited."""


class Target:
    def __init__(self, rust) -> None:
        self._rust = rust
        spec = importlib.util.spec_from_file_location("guest_wire", _WIRE)
        self._wire = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._wire)

    def check(self, data: bytes) -> bool:
        """Whether the input is accepted."""
        # The first byte is the length of pieces, as for the Rust target.
        piece, stream = max(1, data[0]) if data else 1, data[1:]
        whole = read([stream])
        pieces = read([stream[start : start + piece] for start in range(0, len(stream), piece)])
        assert whole == pieces, f"pieces of {piece} bytes make a difference"
        frames, error = whole
        taken, told = self._rust.frames(stream)
        if error is None:
            assert taken or not all(is_strict(header) for header, _ in frames), told
            lengths = [[len(header), len(payload)] for header, payload in frames]
            assert not taken or lengths == json.loads(told), told
            self._check_guest(stream, frames, piece)
            return True
        assert not taken or not all(map(is_message, headers_of(stream))), f"Rust takes it: {told}"
        return False

    def _check_guest(self, stream: bytes, frames: list[tuple[bytes, bytes]], piece: int) -> None:
        """The guest trusts the sender, so this checks only that well-formed frames are read unchanged."""
        if not all(is_strict(header) for header, _ in frames):
            return
        wire, place = self._wire, 0

        def read_descriptor(descriptor: int, count: int) -> bytes:
            nonlocal place
            part = stream[place : place + min(count, piece)]
            place += len(part)
            return part

        def leave(code: int) -> None:
            raise Ended

        wire.read_descriptor, wire._exit = read_descriptor, leave
        wire.received.clear()
        for header, payload in frames:
            assert wire.receive() == (json.loads(header), payload), "the guest reads another frame"
            written = wire.encode(json.loads(header), payload)
            [[again, same]], error = read([written])
            assert error is None, "what the guest writes is refused"
            assert (json.loads(again), same) == (json.loads(header), payload)


def read(pieces: list[bytes]) -> tuple[list[tuple[bytes, bytes]], str | None]:
    """The headers and payloads, and the error after them."""
    decoder, frames, seen = Decoder(), [], b""
    for piece in pieces:
        seen += piece
        decoder.feed(piece)
        while True:
            before = len(seen) - len(decoder._buffer) + decoder._start
            try:
                frame = decoder.next_frame()
            except ProtocolError as error:
                # The amount received, which some messages quote, depends on the split.
                return frames, str(error).split("JSON")[0]
            if frame is None:
                break
            length = int.from_bytes(seen[before : before + 4], "little")
            header = seen[before + 8 : before + 8 + length]
            assert frame.header == json.loads(header) or frame.header != frame.header or "NaN" in repr(header)
            frames.append((header, bytes(frame.payload)))
    return frames, None


def headers_of(stream: bytes) -> list[bytes]:
    headers, place = [], 0
    while len(stream) - place >= 8:
        length = int.from_bytes(stream[place : place + 4], "little")
        payload = int.from_bytes(stream[place + 4 : place + 8], "little")
        headers.append(stream[place + 8 : place + 8 + length])
        place += 8 + length + payload
    return headers


def is_strict(header: bytes) -> bool:
    """Whether every JSON parser accepts it. Python's accepts more (NaN, lone surrogates, 1e999)."""
    try:
        text = json.dumps(json.loads(header), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError):
        return False
    deepest = depth = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    return deepest < 100


def is_message(header: bytes) -> bool:
    """Whether a supervisor could have written it: an object with a kind, without text around it or an
    integer of more than 64 bits."""
    if not header.startswith(b"{") or not header.endswith(b"}"):
        return False
    try:
        return type(json.loads(header, parse_int=integer).get("kind")) is str
    except (ValueError, RecursionError):
        return False


def integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError("more than 64 bits")
    return int(text)

"""The caller link of a test's supervisor: a separate implementation, so that it checks the package's."""

from __future__ import annotations

import array
import fcntl
import json
import os
import select
import socket
import struct
from typing import Any, NamedTuple


class Received(NamedTuple):
    """A frame of the client."""

    header: dict[str, Any]
    payload: bytes
    descriptors: list[int]


def frame(header: Any, payload: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<II", len(text), len(payload)) + text + payload


class Wire:
    """One end of a connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._buffer = b""
        self._descriptors: list[int] = []

    def receive(self) -> Received | None:
        """The next frame, or `None` when the peer is gone."""
        while True:
            if len(self._buffer) >= 8:
                lengths = struct.unpack_from("<II", self._buffer)
                end = 8 + sum(lengths)
                if len(self._buffer) >= end:
                    middle = 8 + lengths[0]
                    header = json.loads(self._buffer[8:middle])
                    payload = self._buffer[middle:end]
                    self._buffer = self._buffer[end:]
                    return Received(header, payload, self._take(header))
            try:
                data, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 16, 8)
            except OSError:
                return None
            self._descriptors.extend(descriptors)
            if not data:
                return None
            self._buffer += data

    def has_more(self, seconds: float) -> bool:
        """Whether more arrives within a time."""
        return bool(self._buffer or select.select([self.socket], [], [], seconds)[0])

    def _take(self, header: dict[str, Any]) -> list[int]:
        blob = header.get("blob") or {}
        if blob.get("passed") or (header.get("stdin") and header["kind"] == "open"):
            return [self._descriptors.pop(0)]
        return []

    def send(self, header: Any, payload: bytes = b"", descriptors: tuple[int, ...] = ()) -> None:
        self.send_bytes(frame(header, payload), descriptors)

    def send_bytes(self, data: bytes, descriptors: tuple[int, ...] = ()) -> None:
        try:
            if descriptors:
                rights = array.array("i", descriptors)
                sent = self.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                data = data[sent:]
            self.socket.sendall(data)
        except OSError:
            # The client disconnected, as many tests intend.
            return


def passed_file(content: bytes, *, seals: int = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW) -> int:
    """A memory file in the form that a supervisor passes."""
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, content)
    if seals:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor

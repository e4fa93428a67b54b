"""Frames from and to the supervisor, with the files that come beside them, for all threads.

No thread is there only to read: one that waits reads for all, and what it reads for another it
hands over. A thread that stops waiting passes the reading on to one that still does."""

import sys
from _thread import allocate_lock
from os import _exit, close
from select import POLLIN, poll

import _socket

from .. import wire

# Bytes read at once; a frame is mostly below.
CHUNK = 16 * 1024
ANCILLARY = _socket.CMSG_SPACE(4 * 4)
RIGHTS = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
NOTHING = {}


class Mailbox:
    """What was read for one who waits."""

    def __init__(self):
        self.messages = []
        self.asleep = False
        self.bell = allocate_lock()
        self.bell.acquire()

    def wake(self):
        """Whether there was anyone to wake. Under the link's lock."""
        if not self.asleep:
            return False
        self.asleep = False
        self.bell.release()
        return True


class Link:
    def __init__(self, interrupts):
        self.interrupts = interrupts
        self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, wire.DATA)
        self.input = poll()
        self.input.register(wire.DATA, POLLIN)
        # Another, for a signal's handler may run while that one waits.
        look = poll()
        look.register(wire.DATA, POLLIN)
        interrupts.has_input = lambda: bool(self.received or look.poll(0))
        self.received = bytearray()
        self.passed = []
        self.writing = allocate_lock()
        # Guards what follows; never held while something is waited for.
        self.state = allocate_lock()
        self.reading = False
        self.requests = Mailbox()
        self.calls = {}

    def send(self, header, packed=(None, b"", None)):
        """Sends a frame. What `packed` holds open is closed."""
        blob, payload, descriptor = packed
        if blob is not None:
            header["blob"] = blob
        frame = wire.encode(header, payload)
        try:
            with self.writing:
                if descriptor is not None:
                    sent = self.socket.sendmsg(
                        [frame], [(*RIGHTS, descriptor.to_bytes(4, sys.byteorder))]
                    )
                    frame = frame[sent:]
                if frame:
                    self.socket.sendall(frame)
        finally:
            if descriptor is not None:
                close(descriptor)

    def request(self):
        """The supervisor's next request, and its payload."""
        request = self.receive_for(self.requests)
        self.interrupts.resting = False
        return request

    def call(self, number, header, packed):
        """Sends a call, and waits for its answer."""
        mailbox = self.calls[number] = Mailbox()
        try:
            self.send(header, packed)
            return self.receive_for(mailbox)
        finally:
            # One that comes later is nobody's.
            del self.calls[number]

    def receive_for(self, mailbox):
        try:
            while True:
                with self.state:
                    if mailbox.messages:
                        return mailbox.messages.pop(0)
                    reads = not self.reading
                    if reads:
                        self.reading = True
                    else:
                        mailbox.asleep = True
                if reads:
                    self.read_one()
                else:
                    self.interrupts.wait(mailbox.bell.acquire)
        finally:
            self.pass_reading_on(mailbox)

    def read_one(self):
        """Reads a frame, and hands it to whom it belongs."""
        try:
            if not self.received and self.interrupts.mode:
                # The one place where a cell that waits for an answer may be interrupted.
                self.interrupts.wait(self.input.poll)
            header, payload = self.receive_frame()
        finally:
            self.reading = False
        passed = None
        if header.get("blob", NOTHING).get("passed"):
            passed = self.passed.pop(0)
        owner = self.requests
        if header["kind"] == "return":
            owner = self.calls.get(header["call"])
            if owner is None and passed is not None:
                close(passed)
        if owner is not None:
            with self.state:
                owner.messages.append((header, payload, passed))
                owner.wake()

    def pass_reading_on(self, mailbox):
        with self.state:
            mailbox.asleep = False
            if not self.reading:
                for waiting in (self.requests, *self.calls.values()):
                    if waiting.wake():
                        break

    def receive_frame(self):
        prefix = self.take(8)
        header = self.take(int.from_bytes(prefix[:4], "little"))
        payload = self.take(int.from_bytes(prefix[4:], "little"))
        return wire.loads(header.decode("utf-8")), payload

    def take(self, count):
        received = self.received
        while len(received) < count:
            data, ancillary, _, _ = self.socket.recvmsg(
                max(count - len(received), CHUNK), ANCILLARY, _socket.MSG_CMSG_CLOEXEC
            )
            if not data:
                _exit(0)
            received.extend(data)
            for level, kind, numbers in ancillary:
                if (level, kind) == RIGHTS:
                    self.passed.extend(memoryview(numbers).cast("i"))
        taken = bytes(received[:count])
        del received[:count]
        return taken

"""Frames from and to the supervisor, with the files that come beside them, for all threads.

No thread is there only to read: one that waits reads for all, and what it reads for another it
hands over. A thread that stops waiting passes the reading on to one that still does."""

import sys
from _thread import allocate_lock
from errno import ETOOMANYREFS
from os import _exit, close

import _socket

from .. import wire
from .shared import NotPassed

# Bytes read at once; a frame is mostly below.
CHUNK = 16 * 1024
# No frame begins like this: its header would be longer than any may be.
UNTOUCHED = b"\xff\xff\xff\xff"
ANCILLARY = _socket.CMSG_SPACE(4 * 4)
RIGHTS = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
PEEK_NOW = _socket.MSG_PEEK | _socket.MSG_DONTWAIT
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
        interrupts.has_input = self.has_input
        # What is read comes here first, so that it can be seen to have come as soon as it has.
        self.chunk = bytearray(UNTOUCHED) + bytearray(CHUNK - len(UNTOUCHED))
        self.lengths = memoryview(self.chunk)[:8].cast("I")
        self.received = bytearray()
        self.passed = []
        self.writing = allocate_lock()
        # Guards what follows; never held while something is waited for.
        self.state = allocate_lock()
        # Whether a thread reads; whether there is something, and it is being taken in.
        self.reading = False
        self.taking = False
        self.requests = Mailbox()
        self.calls = {}

    def has_input(self):
        """Whether a request has come; in a signal's handler, so between any two bytecodes."""
        if self.taking or self.received or self.requests.messages:
            return True
        if not self.chunk.startswith(UNTOUCHED):
            return True
        try:
            return bool(self.socket.recv(1, PEEK_NOW))
        except BlockingIOError:
            return False

    def send(self, header, packed=(None, b"", None)):
        """Sends a frame. What `packed` holds open is closed. Raises `NotPassed` where the kernel does not
        let it go along: it counts what is under way for all guests of one user together."""
        blob, payload, descriptor = packed
        if blob is not None:
            header["blob"] = blob
        frame = wire.encode(header, payload)
        try:
            with self.writing:
                if descriptor is not None:
                    frame = frame[self.pass_with(frame, descriptor) :]
                if frame:
                    self.socket.sendall(frame)
        finally:
            if descriptor is not None:
                close(descriptor)

    def pass_with(self, frame, descriptor):
        rights = [(*RIGHTS, descriptor.to_bytes(4, sys.byteorder))]
        try:
            return self.socket.sendmsg([frame], rights)
        except OSError as error:
            if error.errno == ETOOMANYREFS:
                raise NotPassed(error.errno, error.strerror) from None
            raise

    def request(self):
        """The supervisor's next request, and its payload."""
        return self.receive_for(self.requests)

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
                        if mailbox is self.requests:
                            self.interrupts.resting = False
                        return mailbox.messages.pop(0)
                    reads = not self.reading
                    if reads:
                        self.reading = True
                    else:
                        mailbox.asleep = True
                if reads:
                    message = self.read_one(mailbox)
                    if message is not None:
                        return message
                else:
                    self.interrupts.wait(mailbox.bell.acquire)
        finally:
            self.pass_reading_on(mailbox)

    def read_one(self, mailbox):
        """Reads a frame: the reader's own message, or nothing where it was another's."""
        try:
            if self.interrupts.may_be_left() and not self.received:
                # Without taking it: an interrupt must not come between a frame and who takes it.
                self.interrupts.wait(self.socket.recv, 1, _socket.MSG_PEEK)
            header, payload = self.receive_frame()
            passed = None
            if header.get("blob", NOTHING).get("passed"):
                passed = self.passed.pop(0)
            owner = self.requests
            if header["kind"] == "return":
                owner = self.calls.get(header["call"])
            if owner is not mailbox:
                self.hand_over(owner, (header, payload, passed))
                return None
            if owner is self.requests:
                self.interrupts.resting = False
            return header, payload, passed
        finally:
            self.taking = False
            self.reading = False

    def hand_over(self, owner, message):
        with self.state:
            if owner is not None:
                owner.messages.append(message)
                owner.wake()
            elif message[2] is not None:
                close(message[2])

    def pass_reading_on(self, mailbox):
        with self.state:
            mailbox.asleep = False
            if not self.reading:
                for waiting in (self.requests, *self.calls.values()):
                    if waiting.wake():
                        break

    def receive_frame(self):
        if not self.received:
            count = self.receive()
            self.taking = True
            middle = 8 + self.lengths[0]
            end = middle + self.lengths[1]
            if count == end:
                # Almost every frame comes whole and alone.
                header, payload = self.chunk[8:middle], bytes(self.chunk[middle:end])
                self.chunk[:4] = UNTOUCHED
                return wire.loads(header.decode("utf-8")), payload
            self.keep(count)
        self.taking = True
        prefix = self.take(8)
        header = self.take(int.from_bytes(prefix[:4], "little"))
        payload = self.take(int.from_bytes(prefix[4:], "little"))
        return wire.loads(header.decode("utf-8")), payload

    def take(self, count):
        received = self.received
        while len(received) < count:
            self.keep(self.receive())
        taken = bytes(received[:count])
        del received[:count]
        return taken

    def keep(self, count):
        self.received += memoryview(self.chunk)[:count]
        self.chunk[:4] = UNTOUCHED

    def receive(self):
        """Reads what has come into the chunk; how many bytes."""
        count, ancillary, _, _ = self.socket.recvmsg_into(
            (self.chunk,), ANCILLARY, _socket.MSG_CMSG_CLOEXEC
        )
        if not count:
            _exit(0)
        for level, kind, numbers in ancillary:
            if (level, kind) == RIGHTS:
                self.passed.extend(memoryview(numbers).cast("i"))
        return count

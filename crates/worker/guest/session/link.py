"""Sends and receives frames and their descriptors for all threads.

No thread exists only to read. One waiting thread reads for all and hands over messages for other threads.
When it stops waiting, another waiting thread takes over."""

import sys
from _thread import allocate_lock
from errno import ETOOMANYREFS
from os import _exit, close

import _socket

from .. import wire
from .shared import NotPassed

# Bytes to read at once. Most frames are smaller.
CHUNK = 16 * 1024
# No frame begins with these bytes: its header would exceed the maximum length.
UNTOUCHED = b"\xff\xff\xff\xff"
ANCILLARY = _socket.CMSG_SPACE(4 * 4)
RIGHTS = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS)
PEEK_NOW = _socket.MSG_PEEK | _socket.MSG_DONTWAIT
NOTHING = {}


class Mailbox:
    """Messages that were read for a waiting thread."""

    def __init__(self):
        self.messages = []
        self.asleep = False
        self.bell = allocate_lock()
        self.bell.acquire()

    def wake(self):
        """Wakes the waiting thread. Returns whether there was one. The caller must hold the link's lock."""
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
        # Data is read into this buffer, so that its arrival is visible at once.
        self.chunk = bytearray(UNTOUCHED) + bytearray(CHUNK - len(UNTOUCHED))
        self.lengths = memoryview(self.chunk)[:8].cast("I")
        self.received = bytearray()
        self.passed = []
        self.writing = allocate_lock()
        # Guards the fields below. Never held during a wait.
        self.state = allocate_lock()
        # Whether a thread is reading, and whether it is processing received data.
        self.reading = False
        self.taking = False
        self.requests = Mailbox()
        # Called to wake the main thread while it does not wait for the mailbox.
        self.on_request = None
        self.calls = {}

    def has_input(self):
        """Returns whether a request has arrived. A signal handler calls this, between any two bytecodes."""
        if self.taking or self.received or self.requests.messages:
            return True
        if not self.chunk.startswith(UNTOUCHED):
            return True
        try:
            return bool(self.socket.recv(1, PEEK_NOW))
        except BlockingIOError:
            return False

    def send(self, header, packed=wire.NOTHING):
        """Sends a frame, and closes the descriptor of `packed`. Raises `NotPassed` if the kernel refuses the
        descriptor: it counts descriptors in flight for all guests of a user together."""
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
        """Waits for the supervisor's next request and returns it with its payload and descriptor."""
        return self.receive_for(self.requests)

    def call(self, number, header, packed):
        """Sends a call and waits for its reply."""
        mailbox = self.calls[number] = Mailbox()
        try:
            self.send(header, packed)
            return self.receive_for(mailbox)
        finally:
            # A late reply is dropped.
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
        """Reads a frame. Returns the reader's own message, or `None` if it was for another thread."""
        try:
            if self.interrupts.may_be_left() and not self.received:
                # Peek only: an interrupt must not occur between receiving a frame and storing it.
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
                if owner is self.requests and self.on_request is not None:
                    self.on_request()
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
                # Fast path: almost every frame arrives complete and alone.
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
        """Reads available data into the chunk. Returns the number of bytes."""
        count, ancillary, _, _ = self.socket.recvmsg_into(
            (self.chunk,), ANCILLARY, _socket.MSG_CMSG_CLOEXEC
        )
        if not count:
            _exit(0)
        for level, kind, numbers in ancillary:
            if (level, kind) == RIGHTS:
                self.passed.extend(memoryview(numbers).cast("i"))
        return count

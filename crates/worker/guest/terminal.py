"""Gives a program its own terminal. The process that creates it relays bytes between the terminal and the
standard streams. The supervisor sees pipes, as always, so it need not trust this process."""

import fcntl
import os
import select
import signal
import struct
import termios

# The header of a record on standard input: kind and length.
HEAD = struct.Struct("<cH")
TYPED, SIZE = b"t", b"s"
# Maximum bytes typed that the program has not read. No more is read until the program reads.
MAX_TYPED = 1 << 16
CHUNK = 1 << 14


def begin_terminal(kind):
    """Forks. Returns in the child, whose controlling terminal is a new one. The parent ends like the
    child."""
    size = read_record(read_exactly)[1]
    ends, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup)
    child, master = os.forkpty()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        resize(0, size)
        os.environ["TERM"] = kind
        return
    # The supervisor's interrupt must end this process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        Relay(master).serve(ends)
        # Hangs up the terminal. A program that survives this is left to the supervisor.
        os.close(master)
    except OSError:
        pass
    end_as(os.waitpid(child, 0)[1])


def end_as(status):
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def resize(terminal, size):
    rows, columns = struct.unpack("<HH", size)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_record(read):
    kind, length = HEAD.unpack(read(HEAD.size))
    return kind, read(length)


def read_exactly(length):
    data = b""
    while len(data) < length:
        more = os.read(0, length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


class Relay:
    def __init__(self, master):
        self.master = master
        self.typed = b""
        self.is_open = True
        os.set_blocking(master, False)

    def serve(self, ends):
        """Relays bytes until the program has ended or the caller is gone."""
        while self.is_open:
            poll = select.poll()
            poll.register(ends, select.POLLIN)
            poll.register(self.master, select.POLLIN | (select.POLLOUT if self.typed else 0))
            if len(self.typed) < MAX_TYPED:
                poll.register(0, select.POLLIN)
            ready = dict(poll.poll())
            if ready.get(self.master, 0) & select.POLLOUT:
                self.type()
            # Output that the program wrote before it ended comes first.
            if ready.get(self.master, 0) & ~select.POLLOUT:
                self.show()
            elif ends in ready:
                # Processes that the program left behind may still have the terminal open.
                return
            if 0 in ready:
                self.take()

    def show(self):
        try:
            data = os.read(self.master, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            # No process has the terminal open any more.
            data = b""
        self.is_open = bool(data)
        while data:
            data = data[os.write(1, data) :]

    def take(self):
        try:
            kind, data = read_record(read_exactly)
        except EOFError:
            self.is_open = False
            return
        if kind == SIZE:
            resize(self.master, data)
        elif kind == TYPED:
            self.typed += data
            self.type()

    def type(self):
        try:
            self.typed = self.typed[os.write(self.master, self.typed) :]
        except BlockingIOError:
            pass

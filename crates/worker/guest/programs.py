"""Starts the caller's programs, in a separate process, because the session's worker belongs to the guest.

This is a program itself (`python3 -I -S -c`), in the same jail as the worker that starts it. The supervisor
creates the programs' standard streams and reads them itself, so it need not trust this process."""

import _signal
import _socket
import os
import select
from errno import EIO
from os import _exit

# The socket over which the supervisor passes the link.
CONTROL = 3
CHUNK = 1 << 14
MAX_LEFT = 1 << 17
ONE, FEW = _socket.CMSG_SPACE(4), _socket.CMSG_SPACE(4 * 4)
ONLY_NOW = _socket.MSG_DONTWAIT | _socket.MSG_CMSG_CLOEXEC


def main():
    reset_signals()
    _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
    os.umask(0o022)
    ends, wakeup = os.pipe()
    for number in ends, wakeup:
        os.set_blocking(number, False)
    _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    _signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, CONTROL)
    link = newest_link(control)
    control.close()
    Starter(link, ends).serve()


def newest_link(control):
    """Returns the link that was passed last. Earlier ones were meant for starters that ended before they
    received theirs."""
    links = []
    while True:
        try:
            _, passed, _, _ = control.recvmsg(1, ONE, ONLY_NOW)
        except BlockingIOError:
            break
        links += descriptors_of(passed)
    # The list is empty if guest code sent the signal or consumed the message.
    link = links.pop()
    for number in links:
        os.close(number)
    return link


def reset_signals():
    """Resets all signals to their default dispositions. The guest may ignore some, and Python ignores
    others."""
    for number in range(1, _signal.NSIG):
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):
            # This signal cannot be handled.
            pass


def descriptors_of(ancillary):
    return [number for _, _, numbers in ancillary for number in memoryview(numbers).cast("i")]


class Starter:
    def __init__(self, link, ends):
        self.link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, link)
        self.ends = ends
        self.received = bytearray()
        self.passed = []
        # Programs by the supervisor's number.
        self.programs = {}

    def serve(self):
        while True:
            poll = select.poll()
            poll.register(self.link, select.POLLIN)
            poll.register(self.ends, select.POLLIN)
            for program in self.programs.values():
                program.register(poll)
            ready = dict(poll.poll())
            for program in list(self.programs.values()):
                program.pass_on(ready)
            if self.ends in ready:
                self.reap()
            for program in list(self.programs.values()):
                if program.is_over():
                    del self.programs[program.number]
                    self.report("ended", program.number, *ending(program.status))
            if self.link.fileno() in ready:
                self.receive()

    def receive(self):
        data, ancillary, _, _ = self.link.recvmsg(CHUNK, FEW, _socket.MSG_CMSG_CLOEXEC)
        if not data:
            # The programs keep running, as children of the init.
            _exit(0)
        self.passed += descriptors_of(ancillary)
        self.received += data
        while len(self.received) >= 8:
            end = 8 + int.from_bytes(self.received[:4], "little")
            if len(self.received) < end:
                return
            fields = bytes(self.received[8:end]).split(b"\0")
            del self.received[:end]
            self.follow(fields[0], int(fields[1]), fields[2:])

    def follow(self, kind, number, fields):
        if kind == b"start":
            streams, self.passed = self.passed[:3], self.passed[3:]
            self.start(number, streams, fields)
            return
        program = self.programs.get(number)
        # The end of a program that has ended was reported, or will be.
        if program is None or program.status is not None:
            return
        if kind == b"signal":
            program.signal(int(fields[0]))
        elif kind == b"size" and program.terminal is not None:
            program.terminal.resize(*map(int, fields))

    def start(self, number, streams, fields):
        try:
            program = Program(number, streams, fields)
        except OSError as error:
            self.report("failed", number, "errno", error.errno or EIO)
        else:
            self.programs[number] = program
            self.report("started", number, "pid", program.pid)
        finally:
            for stream in streams:
                os.close(stream)

    def reap(self):
        try:
            os.read(self.ends, CHUNK)
        except BlockingIOError:
            pass
        for program in self.programs.values():
            if program.status is None:
                pid, status = os.waitpid(program.pid, os.WNOHANG)
                if pid:
                    program.status = status

    def report(self, kind, number, name, value):
        header = b'{"kind":"%s","id":%d,"%s":%d}' % (kind.encode(), number, name.encode(), value)
        self.link.sendall(len(header).to_bytes(8, "little") + header)


def ending(status):
    if os.WIFSIGNALED(status):
        return "signal", os.WTERMSIG(status)
    return "code", os.WEXITSTATUS(status)


class Program:
    """A running program."""

    def __init__(self, number, streams, fields):
        self.number = number
        self.status = None
        kind, rows, columns, cwd, count = fields[:5]
        argv, changes = fields[5 : 5 + int(count)], fields[5 + int(count) :]
        environment = dict(os.environb)
        environment.update(change.split(b"=", 1) for change in changes)
        self.terminal = slave = None
        # Descriptors that stay in this process, and descriptors that only the child uses.
        kept, given = [], []
        try:
            if kind:
                environment[b"TERM"] = kind
                master, slave = os.openpty()
                kept.append(master)
                given.append(slave)
                for stream in streams[:2]:
                    kept.append(os.dup(stream))
                self.terminal = Terminal(*kept)
                self.terminal.resize(int(rows), int(columns))
            errors, report_to = os.pipe()
            kept.append(errors)
            given.append(report_to)
            self.pid = os.fork()
            if not self.pid:
                become(streams, slave, cwd, argv, environment, report_to)
        except OSError:
            for number in kept:
                os.close(number)
            raise
        finally:
            for number in given:
                os.close(number)
        # EOF follows once the program is executed, which closes the other end.
        failed = os.read(errors, 8)
        os.close(errors)
        if failed:
            os.waitpid(self.pid, 0)
            self.close()
            raise OSError(int(failed), "")

    def signal(self, number):
        try:
            os.killpg(self.pid, number)
        except OSError:
            # This worker may not create process groups.
            try:
                os.kill(self.pid, number)
            except OSError:
                # It may not send signals either. The supervisor ends a worker that does not end a program.
                pass

    def register(self, poll):
        if self.terminal is not None:
            self.terminal.register(poll)

    def pass_on(self, ready):
        if self.terminal is not None:
            self.terminal.pass_on(ready)

    def is_over(self):
        """Returns whether the program has ended and its terminal output is flushed."""
        if self.status is None or (self.terminal is not None and not self.terminal.is_drained()):
            return False
        self.close()
        return True

    def close(self):
        if self.terminal is not None:
            self.terminal.close()


def become(streams, slave, cwd, argv, environment, report_to):
    """Executes the program, in a child of the starter."""
    try:
        _signal.set_wakeup_fd(-1)
        reset_signals()
        try:
            os.setsid()
        except PermissionError:
            # This worker may not create sessions.
            pass
        if slave is not None:
            import fcntl
            import termios

            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            streams = slave, slave, slave
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(cwd)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(report_to, b"%d" % (error.errno or EIO))
    finally:
        _exit(127)


class Terminal:
    """A program's own terminal. The supervisor sees pipes, as always."""

    def __init__(self, master, typed, shown):
        self.master, self.typed, self.shown = master, typed, shown
        for number in master, typed, shown:
            os.set_blocking(number, False)
        # Bytes that wait for the program, and for the supervisor. Nothing more is read until they are
        # written.
        self.to_type = self.to_show = b""
        self.is_typing = self.is_open = True

    def resize(self, rows, columns):
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def register(self, poll):
        events = 0
        if self.is_open and not self.to_show:
            events |= select.POLLIN
        if self.to_type:
            events |= select.POLLOUT
        if events:
            poll.register(self.master, events)
        if self.to_show:
            poll.register(self.shown, select.POLLOUT)
        if self.is_typing and not self.to_type:
            poll.register(self.typed, select.POLLIN)

    def pass_on(self, ready):
        if self.typed in ready:
            self.to_type = self.read(self.typed)
            # EOF, as typed on a terminal.
            self.is_typing = self.to_type != b""
            self.to_type = self.to_type or b"\x04"
        if self.to_type:
            self.to_type = self.write(self.master, self.to_type)
        if self.master in ready and not self.to_show:
            self.show()
        if self.to_show:
            self.to_show = self.write(self.shown, self.to_show)

    def show(self):
        """Reads output of the terminal. Returns whether there was output or EOF."""
        try:
            self.to_show = os.read(self.master, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            # No process has the terminal open any more.
            self.is_open = False
        return True

    def read(self, number):
        try:
            return os.read(number, CHUNK)
        except OSError:
            return b""

    def write(self, number, data):
        """Writes what the descriptor accepts and returns the rest. Drops the data if its reader is gone."""
        try:
            return data[os.write(number, data) :]
        except BlockingIOError:
            return data
        except OSError:
            return b""

    def is_drained(self):
        # Bounded: a terminal buffers less than this. Other processes may keep writing, but that is not the
        # program's output.
        for _ in range(MAX_LEFT // CHUNK):
            if not self.is_open or self.to_show or not self.show():
                break
            self.to_show = self.write(self.shown, self.to_show)
        return not self.to_show

    def close(self):
        for number in self.master, self.typed, self.shown:
            os.close(number)


main()

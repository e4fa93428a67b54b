"""Handles SIGINT from the supervisor. It raises `KeyboardInterrupt` in the running cell, does nothing between
cells, and never interrupts a frame in transit.

The supervisor may send SIGINT from the time when it has written a cell until it has read the result. A signal
that finds no running cell is meant for the cell in the socket, or arrived too late.

Python handles a signal before its next bytecode, or when a system call was interrupted. A call that begins
just before the signal is handled waits as if there were no signal. The supervisor ends such waits by
SIGURG."""

import _signal
from _thread import get_ident

# Imported by name, because a guest may replace attributes of `time`.
from time import sleep

# Where the main thread is, for a handler that runs between two of its bytecodes.
# In the session's own code. `resting` and the link determine whether a cell is about to run.
IDLE = 0
# In guest code, which is interrupted.
OPEN = 1
# In the event loop, which runs the guest's tasks until a request arrives.
BETWEEN = 4
# In the link's code, which must complete first: the interrupt is raised at its end.
SHUT = 2
# In the link's code at a wait that holds no resources, which is interrupted.
WAITING = 3

# Seconds to wait for the main thread to handle a signal, for successive attempts.
RETRY_PAUSES = 0.001, 0.01, 0.1, 1


class Interrupts:
    """Tracks the running cell and whether it can be interrupted."""

    def __init__(self):
        self.mode = IDLE
        self.pending = False
        self.main = get_ident()
        # The number of handled signals.
        self.handled = 0
        # The id of the cell. `final` is the id of an ended cell and the result of the tool that ended it.
        self.cell = 0
        self.final = None
        # Whether the main thread waits for a request, and the function that reports whether one has arrived.
        self.resting = True
        self.has_input = None
        # SIGURG is ignored by default, and an ignored signal interrupts no call.
        _signal.signal(_signal.SIGURG, lambda *_: None)

    def take_signal(self):
        """Installs the handler again after each cell, because the guest may have replaced it."""
        if _signal.getsignal(_signal.SIGINT) != self.handle:
            _signal.signal(_signal.SIGINT, self.handle)

    def begin(self, cell):
        self.cell = cell
        self.final = None

    def rest(self):
        self.pending = False
        self.resting = True

    def answered(self):
        """Returns a tuple with the result of the tool that ended this cell, or an empty tuple."""
        final = self.final
        return final[1:] if final is not None and final[0] == self.cell else ()

    def end_cell(self, cell, answer):
        """Ends a cell in the calling thread, and in the main thread wherever it is."""
        if self.final is None:
            self.final = cell, answer
        if get_ident() != self.main:
            self.interrupt_main(cell)
        # `SystemExit` is not an `Exception`, which agents' code catches. It ends a thread silently and leaves
        # an event loop at once.
        raise SystemExit

    def interrupt_main(self, cell):
        """Sends signals until the main thread handles one. A signal between its last check for signals and a
        wait, for example for a lock, does not wake it."""
        handled = self.handled
        for pause in RETRY_PAUSES:
            if self.handled != handled or cell != self.cell or self.mode == IDLE:
                break
            _signal.pthread_kill(self.main, _signal.SIGINT)
            sleep(pause)

    def handle(self, number, frame):
        self.handled += 1
        mode = self.mode
        if mode == IDLE:
            self.pending = not self.resting or self.has_input()
        elif mode == SHUT:
            self.pending = True
        elif mode == BETWEEN:
            # For the cell that waits behind a task. An interrupt that comes too late ends no task.
            self.pending = self.has_input()
            if self.pending and (frame is None or frame.f_code is not BESIDE):
                raise KeyboardInterrupt
        else:
            if mode == WAITING:
                self.mode = SHUT
            elif frame is not None and frame.f_code is GUARDED:
                # In the frame of `guarded`, outside the guest's code: nothing is left to interrupt.
                self.mode = IDLE
            self.interrupt()

    def interrupt(self):
        self.pending = False
        raise SystemExit if self.answered() else KeyboardInterrupt

    def check(self):
        if self.pending:
            self.interrupt()

    def guarded(self, act, *args):
        """Calls a function that runs guest code. Returns its result and `None`, or `None` and its
        exception."""
        try:
            try:
                self.mode = OPEN
                return act(*args), None
            finally:
                self.mode = IDLE
        except BaseException as error:
            return None, error

    def between(self, act, *args):
        """Calls a function that runs the guest's tasks between cells."""
        try:
            try:
                self.mode = BETWEEN
                act(*args)
            finally:
                self.mode = IDLE
        except BaseException:
            # An exception of a task belongs to no result, and the loop reports errors itself.
            pass

    def shut(self):
        """Delays interrupts until `open`, while the link's code runs. Other threads are never interrupted."""
        if self.mode == OPEN and get_ident() == self.main:
            self.mode = SHUT

    def open(self):
        if self.mode == SHUT and get_ident() == self.main:
            self.mode = OPEN
            self.check()

    def may_be_left(self):
        """Returns whether an interrupt may end a wait of this thread in the link's code."""
        return self.mode == SHUT and get_ident() == self.main

    def wait(self, act, *args):
        """Calls a function that waits, which an interrupt may end at any time."""
        if not self.may_be_left():
            return act(*args)
        try:
            self.mode = WAITING
            self.check()
            return act(*args)
        finally:
            self.mode = SHUT


GUARDED = Interrupts.guarded.__code__
BESIDE = Interrupts.between.__code__

"""SIGINT from the supervisor: `KeyboardInterrupt` in the cell that runs, nothing between cells, and
never in the middle of a frame.

The supervisor sends it from the moment that it has written a cell until it has read the result. So
one that finds no cell running is for the cell that lies in the socket, or else came too late."""

import _signal
from _thread import get_ident

# By name: a guest may put something else into `time`.
from time import sleep

# Where the main thread is, for a handler that runs between two of its bytecodes.
# In the session's own code: whether a cell is about to run is seen elsewhere.
IDLE = 0
# In the guest's code: it is interrupted.
OPEN = 1
# In the link's code, which must not be left half-way: the interrupt comes at its end.
SHUT = 2
# In the link's code where it waits and holds nothing.
WAITING = 3

# Seconds until the main thread should have heard a signal, one try after the other.
HEARD_AFTER = 0.001, 0.01, 0.1, 1


class Interrupts:
    """The cell that runs, and how it may be left."""

    def __init__(self):
        self.mode = IDLE
        self.pending = False
        self.main = get_ident()
        # How many signals its handler was called for.
        self.heard = 0
        # The number of the cell, and the answer of the tool that ended one, with its number.
        self.cell = 0
        self.final = None
        # Whether the next request is being waited for, and what tells whether it has come.
        self.resting = True
        self.has_input = None

    def take_signal(self):
        """After each cell, for the guest may have put a handler of its own."""
        if _signal.getsignal(_signal.SIGINT) != self.handle:
            _signal.signal(_signal.SIGINT, self.handle)

    def begin(self, cell):
        self.cell = cell
        self.final = None

    def rest(self):
        self.pending = False
        self.resting = True

    def answered(self):
        """The answer of a tool that ended this cell, in a tuple."""
        final = self.final
        return final[1:] if final is not None and final[0] == self.cell else ()

    def end_cell(self, cell, answer):
        """Ends a cell in the thread that calls this, and the main thread wherever it is."""
        if self.final is None:
            self.final = cell, answer
        if get_ident() != self.main:
            self.interrupt_main(cell)
        # No `Exception`, which code of agents catches; it ends a thread without a word, and leaves
        # an event loop at once.
        raise SystemExit

    def interrupt_main(self, cell):
        """A main thread that is about to wait, for a lock say, has looked for signals already, and one that comes
        before it waits wakes nobody: as long as it has heard none it is sent another."""
        heard = self.heard
        for pause in HEARD_AFTER:
            if self.heard != heard or cell != self.cell or self.mode == IDLE:
                break
            _signal.pthread_kill(self.main, _signal.SIGINT)
            sleep(pause)

    def handle(self, number, frame):
        self.heard += 1
        mode = self.mode
        if mode == IDLE:
            self.pending = not self.resting or self.has_input()
        elif mode == SHUT:
            self.pending = True
        else:
            if mode == WAITING:
                self.mode = SHUT
            elif frame is not None and frame.f_code is GUARDED:
                # At its edge: what comes next is ours, and there is nothing left to interrupt.
                self.mode = IDLE
            self.interrupt()

    def interrupt(self):
        self.pending = False
        raise SystemExit if self.answered() else KeyboardInterrupt

    def check(self):
        if self.pending:
            self.interrupt()

    def guarded(self, act, *args):
        """The result of what runs guest code, and no exception; or `None` and the exception."""
        try:
            try:
                self.mode = OPEN
                return act(*args), None
            finally:
                self.mode = IDLE
        except BaseException as error:
            return None, error

    def shut(self):
        """From here on the link must not be left half-way. Other threads are never interrupted."""
        if self.mode == OPEN and get_ident() == self.main:
            self.mode = SHUT

    def open(self):
        if self.mode == SHUT and get_ident() == self.main:
            self.mode = OPEN
            self.check()

    def may_be_left(self):
        """Whether an interrupt leaves what this thread waits for in the link's code."""
        return self.mode == SHUT and get_ident() == self.main

    def wait(self, act, *args):
        """Runs what waits, and may be left at any time."""
        if not self.may_be_left():
            return act(*args)
        try:
            self.mode = WAITING
            self.check()
            return act(*args)
        finally:
            self.mode = SHUT


GUARDED = Interrupts.guarded.__code__

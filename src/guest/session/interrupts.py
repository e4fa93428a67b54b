"""SIGINT from the supervisor: `KeyboardInterrupt` in the cell that runs, nothing between cells, and
never in the middle of a frame."""

import _signal
from _thread import get_ident

# Where the main thread is, for a handler that runs between two of its bytecodes.
# No cell: an interrupt is nobody's.
IDLE = 0
# In the guest's code: it is interrupted.
OPEN = 1
# In the link's code, which must not be left half-way: the interrupt comes at its end.
SHUT = 2
# In the link's code where it waits and holds nothing.
WAITING = 3


class CellEnd(SystemExit):
    """Ends a cell whose tool gave the final answer.

    Not an `Exception`, which code of agents catches; of the family of `SystemExit`, which ends a
    thread without a word and leaves an event loop at once."""


class Interrupts:
    """The cell that runs, and how it may be left."""

    def __init__(self):
        self.mode = IDLE
        self.pending = False
        self.main = get_ident()
        # The number of the cell, and the answer of the tool that ended one, with its number.
        self.cell = 0
        self.final = None

    def begin(self, cell):
        self.cell = cell
        self.pending = False
        self.final = None
        # The guest may have put a handler of its own in an earlier cell.
        if _signal.getsignal(_signal.SIGINT) != self.handle:
            _signal.signal(_signal.SIGINT, self.handle)

    def answered(self):
        """The answer of a tool that ended this cell, in a tuple."""
        final = self.final
        return final[1:] if final is not None and final[0] == self.cell else ()

    def end_cell(self, cell, answer):
        """Ends a cell in the thread that calls this, and the main thread wherever it is."""
        if self.final is None:
            self.final = cell, answer
        if get_ident() != self.main and cell == self.cell and self.mode != IDLE:
            _signal.pthread_kill(self.main, _signal.SIGINT)
        raise CellEnd

    def handle(self, number, frame):
        mode = self.mode
        if mode == SHUT:
            self.pending = True
        elif mode != IDLE:
            if mode == WAITING:
                self.mode = SHUT
            elif frame is not None and frame.f_code is GUARDED:
                # At its edge: what comes next is ours, and there is nothing left to interrupt.
                self.mode = IDLE
            self.interrupt()

    def interrupt(self):
        self.pending = False
        raise CellEnd if self.answered() else KeyboardInterrupt

    def guarded(self, act):
        """The result of what runs guest code, and no exception; or `None` and the exception."""
        try:
            try:
                self.mode = OPEN
                return act(), None
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
            if self.pending:
                self.interrupt()

    def wait(self, act, *args):
        """Runs what waits, and may be left at any time."""
        if self.mode != SHUT or get_ident() != self.main:
            return act(*args)
        try:
            self.mode = WAITING
            if self.pending:
                self.interrupt()
            return act(*args)
        finally:
            self.mode = SHUT


GUARDED = Interrupts.guarded.__code__

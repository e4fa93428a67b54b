"""Runs a command on a terminal, and prints whether it sent the terminal anything other than text.

Usage: terminal.py COMMAND...
"""

import os
import re
import sys

# Control characters other than line ends and tabs, as bytes or UTF-8, and a carriage return within a line.
OBEYED = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]|\r(?![\r\n])")


def obeyed(shown):
    """The sequences that a terminal would interpret, with their context."""
    found = OBEYED.search(shown)
    return found and shown[max(found.start() - 20, 0) : found.end() + 20]


def read_to_end(terminal):
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # The other end is closed.
            part = b""
        if not part:
            return shown
        shown += part


def main(command):
    terminal, line = os.openpty()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for stream in (0, 1, 2):
            os.dup2(line, stream)
        os.execvp(command[0], command)
    os.close(line)
    shown = read_to_end(terminal)
    os.waitpid(pid, 0)
    moved = obeyed(shown)
    if not shown.strip():
        print("CONTAINED nothing was shown")
    elif moved:
        print("ESCAPED(terminal) it obeys %r" % moved)
    else:
        print("CONTAINED shown as text")


if __name__ == "__main__":
    main(sys.argv[1:])

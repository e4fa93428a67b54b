"""Standard input of a session that was given none."""

import io

REMEDY = "this session has no input to read: pass values as variables, or call a host tool"


class NoInput(io.TextIOBase):
    """Says so, where an empty file would leave a program to guess."""

    name = "<stdin>"
    encoding = "utf-8"
    errors = "strict"
    mode = "r"

    def refuse(self, *args):
        raise EOFError(REMEDY)

    read = readline = readlines = __next__ = refuse

    @property
    def buffer(self):
        return self

    def __iter__(self):
        return self

    def readable(self):
        return True

    def fileno(self):
        return 0

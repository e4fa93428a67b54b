"""Replaces the standard input of a session that has none."""

import io

REMEDY = "this session has no input to read: pass values as variables, or call a host tool"


class NoInput(io.TextIOBase):
    """Raises an `EOFError` that explains the missing input, unlike an empty file."""

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

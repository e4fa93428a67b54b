"""What a worker has of its own, and not from the zygote that it was forked from."""

import io
import os
import sys


def open_streams():
    """New stream objects, made once for all workers: the interpreter made its own while other files
    stood at 0, 1 and 2."""
    open_stdin()
    # Pipes, as in a worker: a stream remembers whether it can seek.
    kept = [os.dup(number) for number in (1, 2)]
    pipe = os.pipe()
    for number in (1, 2):
        os.dup2(pipe[1], number)
        open_output(number)
    for number, copy in zip((1, 2), kept):
        os.dup2(copy, number)
    for number in (*kept, *pipe):
        os.close(number)


def open_stdin():
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(
        io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8", "surrogateescape"
    )


def open_output(number):
    # Line by line, so that what was printed before a kill is not lost.
    stream = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(number, "w", closefd=False)),
        "utf-8",
        "surrogateescape" if number == 1 else "backslashreplace",
        line_buffering=True,
    )
    stream.mode = "w"
    if number == 1:
        sys.stdout = sys.__stdout__ = stream
    else:
        sys.stderr = sys.__stderr__ = stream


def flush():
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def reseed():
    """Gives this worker random numbers of its own.

    `random` sees to itself after a fork, OpenSSL and `tempfile` by the process number, which is
    never the zygote's; what asks the kernel needs nothing. What is left is numpy's global generator,
    and the key with which multiprocessing's processes know each other, which it draws when imported."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)

"""The open control of the probes against other runs: a naive service in one warm interpreter.

Usage: naive_runner.py (zygote | inproc | tools) PROGRAM...
Runs the programs one after another; @PREV@ in one stands for the VALUE that the one before printed.
"""

import ctypes
import os
import random  # noqa: F401  every child of the zygote inherits its state
import sys

# Open in the server, so that every child shares its offset.
shared = open(__file__)


def zygote(code):
    # The C function does not know of Python's at-fork hooks, so nothing is reseeded.
    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        try:
            exec(code, {"__name__": "__main__"})
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(pid, 0)


def inproc(code):
    exec(code, {"__name__": "__main__"})


def tools(code):
    exec(code, {"__name__": "__main__", "call_tool": lambda name, **arguments: arguments})


def output_of(mode, code):
    reader, writer = os.pipe()
    stdout = os.dup(1)
    os.dup2(writer, 1)
    os.close(writer)
    mode(code)
    sys.stdout.flush()
    os.dup2(stdout, 1)
    os.close(stdout)
    with os.fdopen(reader) as output:
        return output.read()


previous = ""
for path in sys.argv[2:]:
    with open(path) as program:
        source = program.read().replace("@PREV@", previous)
    mode = {"zygote": zygote, "inproc": inproc, "tools": tools}[sys.argv[1]]
    output = output_of(mode, compile(source, path, "exec"))
    sys.stdout.write(output)
    for line in output.splitlines():
        if line.startswith("VALUE "):
            previous = line[len("VALUE ") :]

"""The open control for the probes against other runs: a naive service in one warm interpreter.

Usage: naive_runner.py (zygote | zygote-twins | inproc | tools) PROGRAM...
Runs the programs one after another. @PREV@ in a program stands for the VALUE that the previous one printed.
"""

import ctypes
import os
import random  # noqa: F401  every child of the zygote inherits its state
import sys

# Open in the server, so that every child shares its offset.
shared = open(__file__)
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, -1
# On kernels with Yama, children could not trace this process otherwise.
ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(PR_SET_PTRACER_ANY), 0, 0, 0)


def zygote(code):
    # The C function skips Python's at-fork hooks, so nothing is reseeded.
    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        try:
            exec(code, {"__name__": "__main__"})
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(pid, 0)


def zygote_twins(code):
    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        # The child is process 1 in its namespace, as this server is in its own.
        if ctypes.PyDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWPID):
            os._exit(1)
        zygote(code)
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


MODES = {"zygote": zygote, "zygote-twins": zygote_twins, "inproc": inproc, "tools": tools}
if sys.argv[1] == "zygote-twins":
    sys.path.append(os.path.join(os.path.dirname(__file__), "modules"))
    import drawn_before  # noqa: F401
    import shared_before  # noqa: F401

previous = ""
for path in sys.argv[2:]:
    with open(path) as program:
        source = program.read().replace("@PREV@", previous)
    mode = MODES[sys.argv[1]]
    output = output_of(mode, compile(source, path, "exec"))
    sys.stdout.write(output)
    for line in output.splitlines():
        if line.startswith("VALUE "):
            previous = line[len("VALUE ") :]

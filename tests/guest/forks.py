"""Boots one interpreter for each combination of settings and forks it for each worker, like a zygote."""

import atexit
import ctypes
import functools
import os
import select
import socket
import subprocess
import sys

CONTROL = 1022
# Runs before imports are guarded. A worker may have only the modules that a normal start loads.
PREPARE = """
import os, sys
loaded = set(sys.modules)
import _socket
for name in set(sys.modules) - loaded:
    del sys.modules[name]
control = _socket.socket(fileno=%(control)d)

def fork_workers():
    while True:
        data, passed, _, _ = control.recvmsg(1, 1 << 10)
        if not data:
            os._exit(0)
        [(_, _, packed)] = passed
        files = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            worker = os.fork()
            if worker:
                os.write(writer, b"%%d" %% worker)
                os._exit(0)
            for file, place in zip(files, (0, 1, 2, %(data)d)):
                os.dup2(file, place)
            for file in (*files, reader, writer):
                os.close(file)
            control.close()
            return
        # The worker becomes a child of the requesting process.
        os.waitpid(between, 0)
        control.sendall(os.read(reader, 16))
        for file in (*files, reader, writer):
            os.close(file)

"""
# Runs in the booted interpreter, and continues in each worker.
FORK = "fork_workers()"
PR_SET_CHILD_SUBREAPER = 36


class Process:
    """A child that another process has forked, with the methods of `subprocess.Popen` that the tests use."""

    def __init__(self, pid, stdout, stderr):
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout=None):
        end = os.pidfd_open(self.pid) if self.poll() is None else None
        if end is not None:
            ended, _, _ = select.select([end], [], [], timeout)
            os.close(end)
            if not ended:
                raise subprocess.TimeoutExpired(self.pid, timeout)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(9)


class Zygote:
    """An interpreter that has executed `text` up to its `FORK`."""

    def __init__(self, text, environment):
        self.control, theirs = socket.socketpair()
        os.dup2(theirs.fileno(), CONTROL)
        theirs.close()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", text],
            stdin=subprocess.DEVNULL,
            pass_fds=[CONTROL],
            env=dict(environment),
        )
        os.close(CONTROL)
        atexit.register(self.close)

    def close(self):
        self.control.close()
        self.process.wait()

    def fork(self, stdin, link):
        """Forks a worker with this standard input and this link to its supervisor."""
        (stdout, out), (stderr, err) = os.pipe(), os.pipe()
        with open(os.devnull) as nothing:
            files = [nothing.fileno() if stdin is None else stdin, out, err, link.fileno()]
            socket.send_fds(self.control, [b"f"], files)
        os.close(out)
        os.close(err)
        pid = int(self.control.recv(16))
        return Process(pid, open(stdout, "rb"), open(stderr, "rb"))


@functools.lru_cache(maxsize=None)
def zygote(text, environment):
    """Returns the interpreter that has executed this text with these variables."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1) != 0:
        raise OSError("this process cannot be a subreaper")
    return Zygote(text, environment)

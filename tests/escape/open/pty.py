"""Runs a command with a controlling terminal, like a shell. Its output is passed on unchanged."""

import fcntl
import os
import sys
import termios

terminal, line = os.openpty()
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(line, termios.TIOCSCTTY, 0)
    os.dup2(line, 0)
    os.execvp(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(pid, 0)
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))

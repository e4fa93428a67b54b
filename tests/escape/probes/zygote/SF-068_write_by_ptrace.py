'''
id = "SF-068"
name = "write into that memory as a debugger"
attempt = "Attach to the parent by ptrace(2), and write where the next run reads it."
severity = "critical"
proven_open = "user"
open_mode = "zygote"
runs = 2
through = "one-sandbox"

[[expect]]
errno = ["EPERM"]
'''

import ctypes
import sys


def place():
    """Where the text of `sys.version` lies: in every worker where it does in its zygote."""
    head = ctypes.string_at(id(sys.version), 96)
    return id(sys.version) + head.index(sys.version[:8].encode())


PTRACE, ATTACH, DETACH, PEEK, POKE, WALL = number(101, 117), 16, 17, 2, 5, 0x40000000


def write(process, address, data):
    checked(PTRACE, ATTACH, process, 0, 0)
    os.waitpid(process, WALL)
    aligned = address & ~7
    word = bytearray(ctypes.string_at(aligned, 8))
    word[address - aligned : address - aligned + len(data)] = data
    syscall(PTRACE, POKE, process, aligned, int.from_bytes(word, "little", signed=True))
    syscall(PTRACE, DETACH, process, 0, 0)


def attempt():
    if sys.version.startswith("?"):
        return escaped("an earlier run has written here")
    write(os.getppid() or 1, place(), b"?")
    contained("written")


run(attempt)

'''
id = "SF-068"
name = "write into that memory as a debugger"
attempt = "Attach to the parent with ptrace(2), and write where the next run reads it."
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
    write(os.getppid() or 1, address_of_version(), b"?")
    contained("written")


run(attempt)

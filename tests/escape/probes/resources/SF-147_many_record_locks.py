'''
id = "SF-147"
name = "fill the kernel's memory with record locks"
attempt = """
Split one lock over a file into pieces, from the end. No cgroup is charged for their memory, and each
close(2) of the file walks all of them, also when a process is killed."""
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ENOLCK"]
'''

import fcntl
import struct

PIECES = 4096


def attempt():
    with open("many-locks", "w") as own:
        fcntl.lockf(own, fcntl.LOCK_EX)
        for piece in range(PIECES):
            cut = struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 2 * piece + 1, 1, 0)
            fcntl.fcntl(own, fcntl.F_SETLK, cut)
        escaped("%d pieces" % PIECES)


run(attempt)

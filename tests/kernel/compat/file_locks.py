import fcntl
import os
import struct

F_OFD_SETLK = 37

# A lock on the guest's own file excludes another process until it is released.
with open("/work/locked", "w+b") as own:
    fcntl.lockf(own, fcntl.LOCK_EX)
    ready, child = os.pipe(), os.fork()
    if child == 0:
        with open("/work/locked", "r+b") as other:
            try:
                fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.write(ready[1], b"kept out")
            # Blocks until the lock is released.
            fcntl.lockf(other, fcntl.LOCK_EX)
        os._exit(0)
    assert os.read(ready[0], 100) == b"kept out"
    fcntl.lockf(own, fcntl.LOCK_UN)
    assert os.waitpid(child, 0)[1] == 0

with open("/tmp/locked", "w+b") as own, open("/tmp/locked", "rb") as reader:
    fcntl.flock(own, fcntl.LOCK_SH)
    fcntl.flock(reader, fcntl.LOCK_SH)
    fcntl.lockf(reader, fcntl.LOCK_SH)
    fcntl.fcntl(own, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0))

# `make -O` locks its output like this, so that only one of its programs writes at a time.
for output in (1, os.pipe()[1]):
    fcntl.lockf(output, fcntl.LOCK_EX)
    fcntl.lockf(output, fcntl.LOCK_UN)

# Any number of locks, one after the other.
with open("/dev/shm/locked", "w+b") as own:
    for number in range(3000):
        fcntl.lockf(own, fcntl.LOCK_EX, 1, number)
        fcntl.lockf(own, fcntl.LOCK_UN, 1, number)

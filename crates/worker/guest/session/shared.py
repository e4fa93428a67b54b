"""Packs and unpacks the buffers of a message: in the payload if they are small, otherwise in a file whose
descriptor is passed."""

import os
import sys
from errno import EFBIG
from os import close, dup, dup2, fstat, getpid, unlink, urandom, writev
from os import open as open_file
from os.path import samestat

from ..values import SHARED, layout, pieces, split

# From linux/memfd.h and linux/fcntl.h, because not every Python defines them. A host may allow only
# non-executable memfds. Linux before 6.3 does not know that flag, so the older one is tried next.
MFD_CLOEXEC, MFD_ALLOW_SEALING, MFD_NOEXEC_SEAL = 1, 2, 8
F_ADD_SEALS = 1033
# F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE.
ALL_SEALS = 0x1 | 0x2 | 0x4 | 0x8
# Since Python 3.13 a mapping need not hold its own descriptor.
MAPPING = {"trackfd": False} if sys.version_info >= (3, 13) else {}
FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# Missing in a Python that was built with an older C library.
memfd_create = getattr(os, "memfd_create", None)
# Maximum buffers of one writev(2): IOV_MAX of limits.h.
AT_ONCE = 1024


class NotPassed(OSError):
    """The buffers of a message cannot be passed. Nothing was sent."""


def pack(buffers):
    """Returns the header's `blob` field, the payload, and a descriptor or `None`. Raises `NotPassed` if a
    file cannot be created or exceeds a limit."""
    if not buffers:
        return None, b"", None
    lengths = [len(buffer) for buffer in buffers]
    _, total = layout(lengths)
    parts = pieces(buffers)
    if total <= SHARED:
        return {"lengths": lengths}, b"".join(parts), None
    try:
        descriptor = fill(parts)
    except OSError as error:
        why = "larger than `limits.file_size`" if error.errno == EFBIG else error.strerror
        raise NotPassed(error.errno, why) from None
    return {"lengths": lengths, "passed": True}, b"", descriptor


def fill(parts):
    descriptor, sealable = create()
    try:
        for start in range(0, len(parts), AT_ONCE):
            write_all(descriptor, parts[start : start + AT_ONCE])
        if sealable:
            from fcntl import fcntl

            fcntl(descriptor, F_ADD_SEALS, ALL_SEALS)
    except BaseException:
        close(descriptor)
        raise
    return descriptor


def write_all(descriptor, parts):
    parts = [memoryview(part) for part in parts]
    while parts:
        written = writev(descriptor, parts)
        while parts and written >= len(parts[0]):
            written -= len(parts.pop(0))
        if written:
            parts[0] = parts[0][written:]


def create():
    for flags in (MFD_NOEXEC_SEAL, MFD_ALLOW_SEALING):
        try:
            return memfd_create("sandfork-value", MFD_CLOEXEC | flags), True
        except (TypeError, OSError):
            # The policy refuses the call, or this Python or kernel does not support it.
            continue
    return create_file(), False


def create_file():
    """Creates a file without a name. The supervisor copies it into an immutable one."""
    refusal = None
    for directory in ("/dev/shm", "/tmp", os.environ.get("TMPDIR", "/work")):
        path = "%s/.sandfork-%d-%s" % (directory, getpid(), urandom(8).hex())
        try:
            descriptor = open_file(path, FLAGS, 0o600)
        except OSError as error:
            refusal = error
            continue
        unlink(path)
        return descriptor
    raise refusal


def unpack(blob, payload, passed):
    """Returns the buffers of a received message."""
    if blob is None:
        return ()
    lengths = blob["lengths"]
    if not blob.get("passed"):
        # A copy that the guest may write to, like the pages of a file: arrays use it directly.
        return split(memoryview(bytearray(payload)), lengths)
    try:
        _, total = layout(lengths)
        data = map_privately(passed, total)
    finally:
        close(passed)
    return split(memoryview(data), lengths)


def map_privately(passed, length):
    """Maps a file privately and writable, so that arrays can use its pages without a copy."""
    from mmap import ACCESS_COPY, mmap

    if MAPPING:
        return mmap(passed, length, access=ACCESS_COPY, **MAPPING)
    # The number of the descriptor that the mapping will hold, unless another thread opens one meanwhile.
    held = dup(passed)
    close(held)
    data = mmap(passed, length, access=ACCESS_COPY)
    # The mapping only ever closes it. A session that holds a file without a name cannot be copied, but one
    # with /dev/null in its place can.
    try:
        if samestat(fstat(held), fstat(passed)):
            null = open_file(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            dup2(null, held, False)
            close(null)
    except OSError:
        # A session of such a sandbox cannot be copied.
        pass
    return data

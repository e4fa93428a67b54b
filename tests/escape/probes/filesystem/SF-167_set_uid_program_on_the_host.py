'''
id = "SF-167"
name = "a set-user-ID program left on the host"
attempt = """
With `filesystem.write`: leave a program there that runs as its owner, the user of the host, for every user: by each
call that sets a mode, by the mode of a new file, and by writing to such a file in every way."""
severity = "critical"
proven_open = "user"
set = ["filesystem.write=[\"{WRITABLE}\"]"]

[[expect]]
text = ["no program with its owner's rights"]
'''

import ctypes
import mmap
import shutil
import stat

libc = ctypes.CDLL(None, use_errno=True)
FCHMODAT2, OPENAT2 = 452, 437
AT_FDCWD = -100
BITS = stat.S_ISUID | stat.S_ISGID
# Set-group-ID without the group's right to execute, as in the last mode, marks mandatory locking.
MODES = (0o4755, 0o2755, 0o6755, 0o2644)


def set_modes(path, mode):
    encoded = os.fsencode(path)

    def by_descriptor():
        file = os.open(path, os.O_RDWR)
        try:
            os.fchmod(file, mode)
        finally:
            os.close(file)

    yield lambda: os.chmod(path, mode)
    yield by_descriptor
    yield lambda: os.chmod(os.path.basename(path), mode, dir_fd=os.open(os.path.dirname(path), os.O_RDONLY))
    yield lambda: libc.syscall(FCHMODAT2, AT_FDCWD, encoded, mode, 0)
    yield lambda: libc.syscall(FCHMODAT2, AT_FDCWD, encoded, ctypes.c_ulong(mode | 1 << 32), 0)


def made(path, mode):
    encoded = os.fsencode(path)
    how = (ctypes.c_uint64 * 3)(os.O_RDWR | os.O_CREAT, mode, 0)
    yield lambda: os.open(path, os.O_RDWR | os.O_CREAT, mode)
    yield lambda: libc.syscall(OPENAT2, AT_FDCWD, encoded, how, 24)
    yield lambda: os.mknod(path, stat.S_IFREG | mode)
    yield lambda: unnamed(path, mode)


def unnamed(path, mode):
    file = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR, mode)
    os.link("/proc/self/fd/%d" % file, path, follow_symlinks=True)


def fill(path):
    content = b"#!/bin/sh\n"

    def mapped():
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, 4096)
            with mmap.mmap(file.fileno(), 4096) as mapping:
                mapping[: len(content)] = content

    def cut():
        os.truncate(path, 4096)
        mapped()

    def copied():
        with open("/etc/passwd", "rb") as source, open(path, "r+b") as target:
            os.sendfile(target.fileno(), source.fileno(), 0, 4096)

    def cloned():
        with open("/etc/passwd", "rb") as source, open(path, "r+b") as target:
            os.copy_file_range(source.fileno(), target.fileno(), 4096)

    def written():
        with open(path, "r+b") as file:
            file.write(content)

    return mapped, cut, copied, cloned, written


def attempt():
    os.umask(0)
    # The runs of the other policies use the directory at the same time.
    path = os.path.join(var("WRITABLE"), "program-" + os.urandom(8).hex())
    for mode in MODES:
        for number in range(5):
            shutil.copyfile("/etc/passwd", path)
            if tried(list(set_modes(path, mode))[number], path):
                return
        for number in range(4):
            for way in range(5):
                if tried(list(made(path, mode))[number], path, fill(path)[way]):
                    return
    contained("no program with its owner's rights")


def tried(act, path, fill=None):
    try:
        act()
        if fill is not None:
            fill()
        found = os.stat(path)
        runs = found.st_mode & stat.S_ISUID or found.st_mode & 0o2010 == 0o2010
        if runs and found.st_size:
            escaped("%o with %d bytes" % (found.st_mode & 0o7777, found.st_size))
            return True
    except OSError:
        pass
    finally:
        if os.path.exists(path):
            os.unlink(path)
    return False


run(attempt)

"""Removes a layer from a worker. Arguments: LAYER PID. Must run as root."""

import ctypes
import os
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS = 0x20000
MS_REMOUNT_BIND = 0x20 | 0x1000
OPEN_TREE, MOVE_MOUNT = 428, 429
CLONE_RECURSIVE = 1 | 0x8000
EMPTY_PATH = 4
# The directories that the jail itself creates in its root.
OWN = "/etc", "/dev"
AT_FDCWD = -100


def done(answered):
    if answered < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answered


def clone(path):
    return done(libc.syscall(OPEN_TREE, AT_FDCWD, path.encode(), CLONE_RECURSIVE))


def attach(tree, path):
    done(libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, path.encode(), EMPTY_PATH))


def cgroup(pid):
    for line in open(f"/proc/{pid}/cgroup"):
        _, controllers, path = line.strip().split(":", 2)
        if "/sandfork-" not in path:
            continue
        with open(f"/sys/fs/cgroup/{controllers}/cgroup.procs", "w") as top:
            top.write(str(pid))


def missing(pid, directory="/"):
    """The host's entries that are missing in the jail or have fewer rights there."""
    jail = f"/proc/{pid}/root"
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if path in ("/dev", "/proc", "/sys", "/work") or os.path.islink(path):
            continue
        try:
            inside = os.lstat(jail + path)
        except FileNotFoundError:
            # The host's /tmp may have more entries than fit into the jail's.
            kind = stat.S_IFMT(os.lstat(path).st_mode)
            if kind in (stat.S_IFDIR, stat.S_IFREG) and directory != "/tmp":
                yield path
            continue
        if not stat.S_ISDIR(inside.st_mode):
            continue
        if os.path.samefile(jail + path, path):
            yield path
        else:
            yield from missing(pid, path)


def fill(place):
    """Creates the entries that guests look for in a shown directory; see `fixture.rs`."""
    for name in ("file", "program", "spare", "moving", "device"):
        with open(f"{place}/{name}", "w") as file:
            file.write("#!/bin/sh\nexit 0\n")
        os.chmod(f"{place}/{name}", 0o755)
    for name in ("empty", "sub"):
        os.mkdir(f"{place}/{name}")


def mounts(pid):
    """Mounts all files of the host at their own paths, and shown files without the jail's mount flags."""
    trees = {path: clone(path) for path in missing(pid)}
    devices = [clone("/dev/zero") for _ in OWN]
    files = {path for path in trees if not os.path.isdir(path)}
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    done(libc.setns(namespace, CLONE_NEWNS))
    for point in ("/", "/work", "/tmp", "/dev/shm"):
        done(libc.mount(None, point.encode(), None, MS_REMOUNT_BIND, None))
    owner = os.stat("/")
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    for place in OWN:
        fill(place)
    os.seteuid(0)
    os.setegid(0)
    for place, device in zip(OWN, devices):
        attach(device, f"{place}/device")
    for path, tree in trees.items():
        # A file system that belongs to a user namespace supports only the users of that namespace.
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
        if path in files:
            os.close(os.open(path, os.O_CREAT | os.O_RDONLY))
        else:
            os.makedirs(path, exist_ok=True)
        os.seteuid(0)
        os.setegid(0)
        attach(tree, path)


{"cgroup": cgroup, "mounts": mounts}[sys.argv[1]](int(sys.argv[2]))

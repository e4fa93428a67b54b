"""Prints the file operations that are possible in each place."""

import errno
import fcntl
import os
import socket
import stat
import termios


def attempt(act, *arguments):
    try:
        result = act(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    if isinstance(result, int) and act is os.open:
        os.close(result)
    return "done"


def tell(what, *arguments):
    print(what, attempt(*arguments))


def bind(path):
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(path)


def run(path):
    """Whether the file can be executed, that is, the program exits with 0."""
    child = os.fork()
    if child == 0:
        try:
            os.execv(path, [path])
        except OSError as error:
            os._exit(100 + (error.errno if error.errno < 100 else 99))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return errno.errorcode.get(code - 100, "done") if code >= 100 else "done"


def read(path):
    with open(path, "rb") as file:
        file.read(1)


def terminal(path):
    """An ioctl request to a device, which the filters allow."""
    with open(path, "rb") as device:
        fcntl.ioctl(device, termios.TCGETS, bytes(60))


def cut(path):
    os.truncate(path, 1)


def make_all(place):
    """Every kind of file for whose creation Landlock has a right."""
    made = {
        "file": lambda path: os.mknod(path, 0o600 | stat.S_IFREG),
        "directory": os.mkdir,
        "link": lambda path: os.symlink("x", path),
        "fifo": os.mkfifo,
        "socket": bind,
        "character device": lambda path: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3)),
        "block device": lambda path: os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(7, 0)),
    }
    for kind, act in made.items():
        path = os.path.join(place, "made-" + kind.replace(" ", "-"))
        answered = attempt(act, path)
        print(f"{place}: make a {kind}", answered)
        if answered == "done":
            remove = os.rmdir if kind == "directory" else os.unlink
            tell(f"{place}: remove a {kind}", remove, path)


def change(place):
    """All possible operations on a file of the guest."""
    path, moved = os.path.join(place, "own"), os.path.join(place, "deeper", "own")
    if attempt(os.open, path, os.O_CREAT | os.O_RDWR, 0o755) != "done":
        return
    os.mkdir(os.path.dirname(moved))
    with open(path, "w") as file:
        file.write("#!/bin/sh\nexit 0\n")
    os.chmod(path, 0o755)
    print(f"{place}: run", run(path))
    tell(f"{place}: truncate", cut, path)
    tell(f"{place}: link into another directory", os.link, path, moved)
    tell(f"{place}: move into another directory", os.rename, path, moved)
    tell(f"{place}: remove", os.unlink, moved)
    os.rmdir(os.path.dirname(moved))
    if os.path.exists(path):
        os.unlink(path)


def places():
    for place in ("/", "/etc", "/dev", "/usr", "/proc", "/proc/sys", "/sys", "/work", "/tmp", "/dev/shm", *SHOWN):
        tell(f"{place}: list", os.listdir, place)
        make_all(place)
        change(place)


def shown():
    for place in (*SHOWN, HIDDEN, "/etc", "/dev"):
        name = os.path.join(place, "file")
        tell(f"{name}: read", read, name)
        tell(f"{name}: write", os.open, name, os.O_WRONLY)
        tell(f"{name}: truncate", cut, name)
        print(f"{place}/program: run", run(os.path.join(place, "program")))
        tell(f"{place}/device: open", os.open, os.path.join(place, "device"), os.O_RDONLY)
        tell(f"{place}/device: ask it whether it is a terminal", terminal, os.path.join(place, "device"))
        tell(f"{place}/empty: remove", os.rmdir, os.path.join(place, "empty"))
        tell(f"{place}/spare: remove", os.unlink, os.path.join(place, "spare"))
        tell(f"{place}/moving: move", os.rename, os.path.join(place, "moving"), os.path.join(place, "sub", "moved"))


def rest():
    tell("/.witness: read", read, "/.witness")
    own = ("/proc/meminfo", "/proc/sys/kernel/pid_max", "/sys/devices/system/cpu/online")
    for path in ("/etc/passwd", "/usr/bin/true", "/dev/null", "/proc/self/status", *own):
        tell(f"{path}: read", read, path)
        tell(f"{path}: write", os.open, path, os.O_WRONLY)
        tell(f"{path}: truncate", cut, path)
        print(f"{path}: run", run(path))
    tell("/dev/null: ask it whether it is a terminal", terminal, "/dev/null")
    for path in ("/home", "/boot", "/proc/1/root", "/proc/kallsyms", "/proc/sys/vm", "/sys/kernel", "/.."):
        tell(f"{path}: list", os.listdir, path)


def size(place):
    """The capacity of the guest's own directory."""
    path = os.path.join(place, "filling")
    written = 0
    try:
        with open(path, "wb", buffering=0) as file:
            for _ in range(40):
                written += file.write(bytes(1 << 20))
    except OSError as error:
        print(f"{place}: holds {written >> 20} MiB, then", errno.errorcode[error.errno])
    else:
        print(f"{place}: holds {written >> 20} MiB and more")
    os.unlink(path)
    names = 0
    try:
        while names < 400:
            os.close(os.open(os.path.join(place, f"name-{names}"), os.O_CREAT | os.O_WRONLY))
            names += 1
    except OSError as error:
        print(f"{place}: holds {names} files, then", errno.errorcode[error.errno])
    else:
        print(f"{place}: holds {names} files and more")
    for name in range(names):
        os.unlink(os.path.join(place, f"name-{name}"))
    print(f"{place}: mode", oct(os.stat(place).st_mode & 0o7777))


tell("make a pseudoterminal", os.openpty)
places()
shown()
rest()
for own in ("/work", "/tmp", "/dev/shm"):
    size(own)

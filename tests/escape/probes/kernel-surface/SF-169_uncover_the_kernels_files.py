'''
id = "SF-169"
name = "uncover what is mounted over files of /proc"
attempt = """
Take away a file that is mounted over one of /proc: by umount2(2), by moving it, by a copy of /proc without it, by a
new procfs, and by remounting one without its options."""
severity = "medium"
proven_open = "user"
open_mode = "nested-userns"
needs = ["user-namespaces"]

[[expect]]
errno = ["EPERM", "ENOSYS"]

[[expect]]
policies = ["strict"]
errno = ["ENOENT"]
why = "strict has no /proc"
'''

import ctypes
import tempfile

MS_REMOUNT, MS_BIND, MS_NOSUID, MS_NODEV, MS_NOEXEC = 32, 4096, 2, 4, 8
MNT_DETACH, OPEN_TREE_CLONE, AT_FDCWD, EMPTY_PATH = 2, 1, -100, 4
COVERED = "/proc/version"


def text(string):
    return ctypes.c_char_p(string.encode())


def mount(*arguments):
    return checked(number(165, 40), *arguments)


def cover():
    """As a sandbox does, if it is not done."""
    with open("/proc/self/mountinfo") as mounts:
        if any(line.split()[4] == COVERED for line in mounts):
            return
    with tempfile.NamedTemporaryFile() as file:
        mount(text(file.name), text(COVERED), None, MS_BIND, None)


def uncover():
    checked(number(166, 39), text(COVERED), MNT_DETACH)


def move():
    with tempfile.NamedTemporaryFile() as file:
        checked(429, AT_FDCWD, text(COVERED), AT_FDCWD, text(file.name), 0)


def copy():
    checked(428, AT_FDCWD, text("/proc"), OPEN_TREE_CLONE)


def another():
    checked(430, text("proc"), 0)


def remount():
    flags = MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount(text("proc"), text("/proc"), text("proc"), flags, text("subset="))


def attempt():
    cover()
    with open(COVERED) as file:
        before = file.read()
    refused = set()
    for act in (uncover, move, copy, another, remount):
        try:
            act()
        except OSError as error:
            refused.add(errno_name(error.errno))
            continue
        with open(COVERED) as file:
            if file.read() != before:
                return escaped(act.__name__)
    for reason in sorted(refused):
        contained(reason)


run(attempt)

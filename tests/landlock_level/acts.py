"""Attempts to act outside a sandbox. Prints the result of each as JSON: "done", or the name of the
exception. Arguments: a directory with a canary, a process, and a TCP port of the host."""

import ctypes
import errno
import json
import os
import signal
import socket
import sys

directory, pid, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
canary = os.path.join(directory, "canary")
new = os.path.join(directory, "new")
libc = ctypes.CDLL(None, use_errno=True)


def call(function, *arguments):
    result = function(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def read_a_file():
    assert open(canary).read() == "canary"


def list_a_directory():
    assert "canary" in os.listdir(directory)


def read_through_a_link():
    os.symlink(canary, "link")
    try:
        read = open("link").read()
    finally:
        os.unlink("link")
    assert read == "canary"


def write_a_file():
    open(new, "w").close()
    os.unlink(new)


def append_to_a_file():
    open(canary, "a").close()


def truncate_a_file():
    os.truncate(canary, len("canary"))


def make_a_directory():
    os.mkdir(new)
    os.rmdir(new)


def make_a_link():
    os.symlink("anything", new)
    os.unlink(new)


def hard_link_a_file():
    os.link(canary, new)
    os.unlink(new)


def rename_a_file():
    os.rename(canary, new)
    os.rename(new, canary)


def change_a_mode():
    os.chmod(canary, 0o644)


def change_a_mode_by_a_descriptor_of_no_use():
    handle = os.open(canary, os.O_PATH)
    os.chmod("/proc/self/fd/%d" % handle, 0o644)


def change_times():
    os.utime(canary)


def change_times_of_a_device():
    with open("/dev/null", "w") as device:
        os.utime(device.fileno())


def read_attributes():
    try:
        os.getxattr(canary, "user.sandfork")
    except OSError as error:
        # The file has no such attribute; ENODATA shows that reading was permitted.
        if error.errno != errno.ENODATA:
            raise


def list_attributes():
    os.listxattr(canary)


def list_attributes_of_a_link():
    os.listxattr(canary, follow_symlinks=False)


def watch_a_directory():
    watcher = call(libc.inotify_init1, os.O_CLOEXEC)
    call(libc.inotify_add_watch, watcher, os.fsencode(directory), 0x100)


def read_the_environment_of_another_process():
    open("/proc/%d/environ" % pid, "rb").close()


def read_ones_own_proc():
    open("/proc/self/status").close()


def signal_another_process():
    os.kill(pid, signal.SIGCONT)


def signal_by_handle():
    call(libc.syscall, 424, os.pidfd_open(pid), signal.SIGCONT, None, 0)


def slow_another_process_down():
    before = os.getpriority(os.PRIO_PROCESS, pid)
    os.setpriority(os.PRIO_PROCESS, pid, before + 1)
    if os.getpriority(os.PRIO_PROCESS, pid) == before:
        raise PermissionError(errno.EPERM, "unchanged")


def connect_to_a_unix_socket():
    socket.socket(socket.AF_UNIX).connect(os.path.join(directory, "socket"))


def connect_to_an_abstract_socket():
    socket.socket(socket.AF_UNIX).connect("\0sandfork-canary-%d" % port)


def connect_by_tcp():
    socket.create_connection(("127.0.0.1", port), 1)


def make_a_udp_socket():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def make_a_file_in_shared_memory():
    name = "/dev/shm/sandfork-canary-%d" % os.getpid()
    open(name, "w").close()
    os.unlink(name)


def make_a_sysv_segment():
    segment = call(libc.shmget, 0, 4096, 0o1600)
    call(libc.shmctl, segment, 0, None)


def make_a_file_for_others_in_tmp():
    name = "/tmp/sandfork-canary-%d" % os.getpid()
    open(name, "w").close()
    os.unlink(name)


acts = {name: act for name, act in list(globals().items()) if callable(act) and name != "call"}
report = {}
for name, act in acts.items():
    if getattr(act, "__module__", None) != __name__:
        continue
    try:
        act()
        report[name] = "done"
    except BaseException as error:
        report[name] = "%s %s" % (type(error).__name__, error)
print(json.dumps(report))

"""Prints a process's restrictions from inside: the same lines in every correctly confined worker."""

import ctypes
import errno
import os
import resource
import socket

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    ctypes.set_errno(0)
    answered = getattr(libc, name)(*arguments)
    return "done" if answered >= 0 else errno.errorcode[ctypes.get_errno()]


def attempt(act, *arguments):
    try:
        act(*arguments)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]


def status():
    kept = "Uid Gid Groups NStgid SigBlk SigIgn NoNewPrivs Seccomp Cpus_allowed_list".split()
    for line in open("/proc/self/status"):
        key, _, value = line.partition(":")
        if key in kept or key.startswith(("Cap", "Seccomp_")):
            yield key, value.split()


def mounts():
    for line in open("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        yield (*before.split()[3:6], *after.split()[:1])


for key, value in status():
    print(key, *value)
for mount in mounts():
    print("mount", *mount)
for name in ("uid_map", "gid_map", "setgroups", "cgroup"):
    words = open("/proc/self/" + name).read().split()
    if name == "uid_map" and 2147000000 < int(words[1]) < 1 << 31:
        # Each worker of root has a different uid.
        words[1] = "its own"
    print(name, *words)
for name in sorted(vars(resource)):
    # The interpreter's state at the fork differs between zygotes.
    if name.startswith("RLIMIT_") and name != "RLIMIT_DATA":
        print(name, *resource.getrlimit(getattr(resource, name)))
print("data", resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY)
# One of them belongs to the listing itself.
print("descriptors", sorted(map(int, os.listdir("/proc/self/fd")))[:3], len(os.listdir("/proc/self/fd")))
print("processes", sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()))
print("ids", os.getpid(), os.getppid(), os.getsid(0), os.getuid(), os.getgid(), os.getgroups())
print("place", os.getcwd(), os.listdir("."), os.uname().nodename, os.umask(0o77))
print("list /", attempt(os.listdir, "/"))
print("read what no rule grants", attempt(os.open, "/.witness", os.O_RDONLY))
print("write /", attempt(os.open, "/x", os.O_WRONLY | os.O_CREAT))
print("write /usr", attempt(os.open, "/usr/x", os.O_WRONLY | os.O_CREAT))
print("read /etc/shadow", attempt(os.open, "/etc/shadow", os.O_RDONLY))
print("execute", attempt(os.execv, "/work/x", ["x"]))
print("internet", attempt(socket.socket, socket.AF_INET))
print("netlink", attempt(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW))
print("mount", call("mount", None, b"/work", b"tmpfs", 0, None))
print("ptrace", call("ptrace", 16, 1, 0, 0))
print("unshare", call("unshare", 0x10000000))
print("chroot", call("chroot", b"/work"))
print("bpf", call("syscall", 321, 0, 0, 0))
print("keyctl", call("syscall", 250, 0, 0, 0))
print("capset", call("syscall", 126, 0, 0))
print("kill", attempt(os.kill, 1, 0))

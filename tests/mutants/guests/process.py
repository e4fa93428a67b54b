"""Prints the guest's identity, its view of other processes, and the changes it may make to itself."""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import signal
import socket

libc = ctypes.CDLL(None, use_errno=True)


def attempt(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


def status():
    kept = "Uid NoNewPrivs Seccomp SigBlk".split()
    for line in open("/proc/self/status"):
        key, _, value = line.partition(":")
        if key in kept or key.startswith("Cap"):
            yield key, value.split()


def in_child(act):
    """Runs an act in a child, and returns how the child ended."""
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return signal.Signals(-code).name if code < 0 else "lives"


def as_32_bits():
    """Calls getpid(2) through the 32-bit entry: mov eax, 20; int 0x80; ret."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3"))
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def meet():
    """A listener of another worker, under an abstract name."""
    with socket.socket(socket.AF_UNIX) as own:
        own.settimeout(20)
        own.connect("\0sandfork-mutants")


def internet(act):
    with socket.socket(socket.AF_INET) as own:
        getattr(own, act)(("127.0.0.1", 9999))


for key, value in status():
    print(key, *value)
print("ids", os.getpid(), os.getppid(), os.getsid(0), os.getpgid(0), os.getuid(), os.getgid(), os.getgroups())
print("processes", sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()))
print("place", os.getcwd(), os.uname().nodename, oct(os.umask(0o77)))
print("processors", os.cpu_count(), os.sched_getaffinity(0))
print("memory", *(os.sysconf(name) * os.sysconf("SC_PAGESIZE") >> 20 for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES")))
print("memory by file", open("/proc/meminfo").readline().split()[1])
print("core", *resource.getrlimit(resource.RLIMIT_CORE))
answered = ctypes.c_int(-1)
libc.prctl(2, ctypes.byref(answered), 0, 0, 0)
print("parent-death signal", answered.value)
print("dumpable", libc.prctl(3, 0, 0, 0, 0))
print("signal the init", attempt(os.kill, 1, 0))
print("signal the parent", attempt(os.kill, os.getppid(), 0) if os.getppid() else "not in sight")
print("descriptors", sorted(map(int, os.listdir("/proc/self/fd"))))
print("cgroups", *sorted({line.strip().rpartition(":")[2] for line in open("/proc/self/cgroup")}))
print("another architecture", in_child(as_32_bits))
with open("/etc/passwd") as shown:
    print("lock what is shown", attempt(fcntl.flock, shown, fcntl.LOCK_SH | fcntl.LOCK_NB))
# MFD_NOEXEC_SEAL, which not every Python names and Linux before 6.3 does not have.
print("memory that is no program", attempt(os.memfd_create, "memory", 0x8).replace("EINVAL", "done"))
print("bind to a port", attempt(internet, "bind"))
print("connect to a port", attempt(internet, "connect"))
print("meet another worker", attempt(meet))

"""Runs a command as an ordinary user whose only network is its own loopback.

A sandbox is compared with this: what the kernel refuses every ordinary user, and what needs a network,
fails on both sides.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1

uid, gid = os.getuid(), os.getgid()
if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER | CLONE_NEWNET):
    sys.exit("unshare: " + os.strerror(ctypes.get_errno()))
for name, line in (
    ("setgroups", "deny"),
    ("uid_map", "1000 {} 1".format(uid)),
    ("gid_map", "1000 {} 1".format(gid)),
):
    with open("/proc/self/" + name, "w") as file:
        file.write(line)
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
# execve(2) drops the capabilities that the new namespace gave.
os.execvp(sys.argv[1], sys.argv[1:])

"""The targets of the probes: one host user's files, sockets, memory and a process.

Prints their paths, ports and ids as one JSON object of variables, and serves until its stdin ends.
"""

import ctypes
import json
import os
import selectors
import socket
import subprocess
import sys
import time

CANARY = "CANARY-7d41c0de host\n"
VICTIM = """
import ctypes, sys
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616d61, -1
# Yama would otherwise keep the open control, a sibling, from tracing it.
ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(PR_SET_PTRACER_ANY), 0, 0, 0)
print(flush=True)
sys.stdin.read()
"""
IPC_CREAT, IPC_RMID = 0o1000, 0
MQ_OPEN, MQ_UNLINK = (240, 241) if os.uname().machine == "x86_64" else (180, 181)

libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def write(path):
    with open(path, "w") as file:
        file.write(CANARY)
    return path


def bound(family, kind, address):
    bait = socket.socket(family, kind)
    bait.bind(address)
    if kind == socket.SOCK_STREAM:
        bait.listen()
    return bait


def loopback():
    """TCP and UDP sockets on one port of 127.0.0.1, and of ::1 if the host has it."""
    while True:
        tcp = bound(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        port = tcp.getsockname()[1]
        sockets = [tcp]
        try:
            sockets.append(bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port)))
            if os.path.exists("/proc/net/if_inet6"):
                sockets.append(bound(socket.AF_INET6, socket.SOCK_STREAM, ("::1", port)))
            return port, sockets
        except OSError as error:
            for bait in sockets:
                bait.close()
            if "address already in use" not in str(error).lower():
                return port, loopback_v4(port)


def loopback_v4(port):
    """The same port without IPv6: the host has the protocol, but not the address."""
    return [
        bound(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)),
        bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port)),
    ]


def answer(bait):
    try:
        if bait.type == socket.SOCK_STREAM:
            with bait.accept()[0] as client:
                client.sendall(b"BAIT")
        else:
            _, sender = bait.recvfrom(64)
            if sender:
                bait.sendto(b"BAIT", sender)
    except ConnectionError:
        pass  # The client closed the connection early.


def serve(sockets):
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    for bait in sockets:
        selector.register(bait, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj == 0:
                return
            answer(key.fileobj)


def shown(directory):
    """A file of the user that tenants see, old enough that a read updates its access time."""
    os.mkdir(directory)
    path = write(os.path.join(directory, "shared.txt"))
    os.truncate(path, 1 << 20)
    os.utime(path, (0, 0))
    return path


def writable(directory):
    """A directory of the user to which tenants may write."""
    os.mkdir(directory)
    return directory


def main(directory, tag):
    marker = os.path.join(directory, "marker")
    os.mkdir(marker)
    stream = os.path.join(directory, "stream")
    datagram = os.path.join(directory, "datagram")
    port, sockets = loopback()
    sockets += [
        bound(socket.AF_UNIX, socket.SOCK_STREAM, stream),
        bound(socket.AF_UNIX, socket.SOCK_DGRAM, datagram),
        bound(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + tag),
    ]
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, tag], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    victim.stdout.readline()
    key = 0x5F000000 | os.getpid() & 0xFFFFFF
    segment = checked(libc.shmget(key, 4096, IPC_CREAT | 0o600))
    queue = ctypes.c_char_p(tag.encode())
    checked(libc.syscall(MQ_OPEN, queue, os.O_CREAT | os.O_RDWR, 0o600, None))
    shared = write("/dev/shm/" + tag)
    variables = {
        "CANARY": write(os.path.join(directory, "canary.txt")),
        "MARKER_DIR": marker,
        "PORT": port,
        "USOCK": stream,
        "UDSOCK": datagram,
        "ASOCK": tag,
        "VICTIM_PID": victim.pid,
        "VICTIM_TAG": tag,
        "SHMKEY": key,
        "MQ": "/" + tag,
        "SHM_BAIT": shared,
        "WRITABLE": writable(os.path.join(directory, "written")),
        "SHARED": shown(os.path.join(directory, "shown")),
        "HOSTNAME_REAL": os.uname().nodename,
        "MEMORY_REAL": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE"),
        "STARTED_REAL": time.time() - time.clock_gettime(time.CLOCK_BOOTTIME),
        "HOSTHOME": os.environ["HOME"],
    }
    try:
        print(json.dumps({name: str(value) for name, value in variables.items()}), flush=True)
        serve(sockets)
    finally:
        libc.shmctl(segment, IPC_RMID, None)
        libc.syscall(MQ_UNLINK, queue)
        os.unlink(shared)
        victim.stdin.close()
        victim.wait()


main(*sys.argv[1:])

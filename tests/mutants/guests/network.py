"""Prints the properties of a sandbox's own network, and the filters' actions for system calls on sockets.

As in `calls.py`, these calls are not made."""

import ctypes
import errno
import socket
import threading

MARK = 0x5A5AF000
TOLD = 4000

syscall = ctypes.CDLL(None, use_errno=True).syscall
syscall.restype = ctypes.c_long
syscall.argtypes = [ctypes.c_long] + [ctypes.c_ulong] * 6

# The x86_64 numbers.
SOCKET, SENDTO, SENDMSG, SOCKETPAIR, SETSOCKOPT, GETSOCKOPT, SENDMMSG = 41, 44, 46, 53, 54, 55, 307


def answer(number, *arguments):
    ctypes.set_errno(0)
    padded = (list(arguments) + [0] * 6)[:6]
    padded[5] |= MARK
    if syscall(number, *padded) >= 0:
        return "nothing"
    found = ctypes.get_errno()
    # As in `calls.py`. Without a network, the supervisor refuses sockets.
    told = errno.ENOSYS if number == SOCKET else TOLD
    return "let" if found == told else errno.errorcode.get(found, str(found))


def spans(numbers):
    """Formats 1 2 3 7 as "1-3 7"."""
    found = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return " ".join(f"{a:#x}" if a == b else f"{a:#x}-{b:#x}" for a, b in found)


def tell(title, values, ask):
    answers = {value: ask(value) for value in values}
    for kind in sorted(set(answers.values())):
        print(title, kind, spans(sorted(value for value in answers if answers[value] == kind)))
    # The kernel ignores the upper half of these. A filter that checked it could be bypassed.
    if answers != {value: ask(value | 1 << 32) for value in values}:
        print(title, "with more than 32 bits")


FLAGS = [0, *(1 << bit for bit in range(32))]
STREAM, RAW = 1, 3

tell("socket of family", range(64), lambda family: answer(SOCKET, family, STREAM))
tell("socket pair of family", range(64), lambda family: answer(SOCKETPAIR, family, STREAM))
for family in (2, 10):
    tell(f"socket of family {family}, type", range(16), lambda kind: answer(SOCKET, family, kind))
    tell(f"socket of family {family}, protocol", range(300), lambda protocol: answer(SOCKET, family, STREAM, protocol))
tell("sendto, flags", FLAGS, lambda flags: answer(SENDTO, 9, 0, 0, flags))
tell("sendmsg, flags", FLAGS, lambda flags: answer(SENDMSG, 9, 0, flags))
tell("sendmmsg, flags", FLAGS, lambda flags: answer(SENDMMSG, 9, 0, 0, flags))
for name, number in (("set", SETSOCKOPT), ("get", GETSOCKOPT)):
    for level in (0, 1, 2, 6, 17, 41, 282):
        tell(f"{name} option of level {level}", range(160), lambda option: answer(number, 9, level, option))


MUCH = 128 << 20


def send(client):
    """Sends without pauses, so that the kernel enlarges both buffers. Records the largest size of its own."""
    most = 0
    for _ in range(MUCH >> 16):
        client.sendall(bytes(1 << 16))
        most = max(most, client.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
    sizes.append(most)


sizes = []

# Socket kinds for which the answers above look the same whether they are refused or not.
for kind in (
    (socket.AF_UNIX, socket.SOCK_STREAM, 0),
    (socket.AF_INET, socket.SOCK_DGRAM, 0),
    (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP),
):
    try:
        socket.socket(*kind).close()
        print("made", *map(int, kind))
    except OSError as error:
        print("not made", *map(int, kind), errno.errorcode[error.errno])

with open("/proc/self/net/dev") as table:
    print("interfaces", *sorted(line.split(":")[0].strip() for line in table.readlines()[2:]))
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    try:
        with socket.socket(family) as server:
            server.bind((address, 0))
            server.listen()
            with socket.create_connection(server.getsockname()[:2]) as client, server.accept()[0] as served:
                sender = threading.Thread(target=send, args=(client,))
                sender.start()
                received = most = 0
                while received < MUCH:
                    received += len(served.recv(1 << 20))
                    most = max(most, served.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
                sender.join()
                kinds = ("bounded" if size <= 256 << 10 else "large" for size in (sizes.pop(), most))
                print("connected to", address, "with buffers that are", *kinds)
    except OSError as error:
        print("not connected to", address, errno.errorcode[error.errno])

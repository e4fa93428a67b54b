"""A preloaded module of a hostile package. It looks for the host's files before any guest code runs."""

import os
import socket

found = []
# The directory above this one, where the host's bait is.
above = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def look(what, attempt):
    try:
        if attempt():
            found.append(what)
    except (OSError, ValueError):
        pass


def bait():
    for directory, _, names in os.walk(above):
        for name in names:
            with open(os.path.join(directory, name), "rb") as file:
                if file.read(32).startswith(b"CANARY"):
                    return True
    return False


def ports():
    with open("/proc/net/tcp") as table:
        listening = [line.split()[1] for line in table if " 0A " in line]
    for address in listening:
        port = int(address.rpartition(":")[2], 16)
        socket.create_connection(("127.0.0.1", port), 5).close()
        return True
    return False


def parent():
    with open("/proc/%d/environ" % os.getppid(), "rb") as file:
        return b"SECRET=" in file.read()


def change():
    with open(os.path.join(os.path.dirname(__file__), "changed"), "x"):
        return True


look("a file beside the package", bait)
look("a port of the host", ports)
look("the environment of the launcher", parent)
look("a change of the package for others", change)

"""Tells guests that have no network so. It gives messages only: the kernel refuses the sockets."""

import errno
import sys

# SOCK_STREAM, AF_INET and AF_INET6 of Linux. `socket` is not imported: most guests never use it.
STREAM = 1
INTERNET = (2, 10)
HINT = (
    "this sandbox has no network: `network.allow` in its policy lists the hosts that its code may reach, and "
    '`network.mode = "loopback"` lets its own processes talk to each other'
)
# How far a connection's call may be from the call that was refused, and how long a name is (RFC 1035).
MAX_FRAMES = 8
MAX_NAME = 253


def is_refused():
    """Whether no internet socket can be made."""
    import _socket

    try:
        _socket.socket(INTERNET[0], STREAM).close()
    except OSError as error:
        return error.errno == errno.EPERM
    return False


def calls(error):
    """The innermost calls of the exception in the module `socket`: names of functions, with their variables."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    of_module = [frame for frame in frames[-MAX_FRAMES:] if frame.f_code.co_filename.endswith("socket.py")]
    if not frames or frames[-1] not in of_module:
        return []
    return [(frame.f_code.co_name, frame.f_locals) for frame in reversed(of_module)]


def made_socket(error):
    """Whether the exception is that of an internet socket that was refused."""
    if type(error) is not PermissionError or error.errno != errno.EPERM:
        return False
    # With a network the kernel has no such error for a socket of the Internet.
    return any(variables.get("family") in INTERNET for _, variables in calls(error)[:1])


def is_of_lookup(error):
    """Whether the exception is that of a name that was looked up (getaddrinfo(3))."""
    module = sys.modules.get("_socket")
    return module is not None and type(error) is module.gaierror


def destination(error):
    """The host of the connection that did not come about for want of a network, with its port, or `None`."""
    if not (error.errno == errno.ENETUNREACH or is_of_lookup(error) or made_socket(error)):
        return None
    for function, variables in calls(error):
        if function not in ("create_connection", "getaddrinfo"):
            continue
        host, port = variables.get("host"), variables.get("port")
        if type(host) is not str or not 0 < len(host) <= MAX_NAME:
            return None
        if ":" in host:
            host = "[%s]" % host
        return "%s:%d" % (host, port) if type(port) is int else host
    return None


def explain_no_address(base_events):
    """Patches asyncio, which skips the addresses for which there is no socket, and before Python 3.13 returns a
    server that listens on none."""
    # Only here: its import, with that of `collections`, takes as long as all that an interpreter for a
    # single run imports besides.
    import functools

    original = base_events.BaseEventLoop.create_server

    @functools.wraps(original)
    async def create_server(*args, **kwargs):
        try:
            server = await original(*args, **kwargs)
        except OSError as error:
            if error.errno is not None or not is_refused():
                raise
        else:
            if server.sockets or not is_refused():
                return server
            server.close()
        raise PermissionError(errno.EPERM, "There is no address to listen on, because " + HINT)

    base_events.BaseEventLoop.create_server = create_server


def explain_no_certificates(adapters):
    """Patches `requests` and pip's copy of it, which look for certificates before they connect. Those of Debian
    read a file that is there only with a network."""
    import functools

    original = adapters.HTTPAdapter.cert_verify

    @functools.wraps(original)
    def cert_verify(*args, **kwargs):
        try:
            return original(*args, **kwargs)
        except OSError as error:
            if is_refused():
                error.args = ("%s (%s)" % (error, HINT),)
            raise

    adapters.HTTPAdapter.cert_verify = cert_verify

"""Explains to guests that the sandbox has no network. This only provides messages: the kernel refuses the
sockets."""

import errno
import sys

# SOCK_STREAM, AF_INET and AF_INET6 of Linux. `socket` is not imported, because most guests never use it.
STREAM = 1
INTERNET = (2, 10)
HINT = (
    "this sandbox has no network: `network.allow` in its policy lists the hosts that its code may reach, and "
    '`network.mode = "loopback"` lets its own processes talk to each other'
)
# The maximum number of frames between a connecting call and the refused call, and the maximum length of a
# host name (RFC 1035).
MAX_FRAMES = 8
MAX_NAME = 253


def is_refused():
    """Returns whether internet sockets are refused."""
    import _socket

    try:
        _socket.socket(INTERNET[0], STREAM).close()
    except OSError as error:
        return error.errno == errno.EPERM
    return False


def calls(error):
    """Returns the exception's innermost frames in the module `socket`, as function names and variables."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    of_module = [frame for frame in frames[-MAX_FRAMES:] if frame.f_code.co_filename.endswith("socket.py")]
    if not frames or frames[-1] not in of_module:
        return []
    return [(frame.f_code.co_name, frame.f_locals) for frame in reversed(of_module)]


def made_socket(error):
    """Returns whether the exception is that of a refused internet socket."""
    if type(error) is not PermissionError or error.errno != errno.EPERM:
        return False
    # With a network, the kernel does not raise this error for an internet socket.
    return any(variables.get("family") in INTERNET for _, variables in calls(error)[:1])


def is_of_lookup(error):
    """Returns whether the exception is that of a failed name lookup (getaddrinfo(3))."""
    module = sys.modules.get("_socket")
    return module is not None and type(error) is module.gaierror


def destination(error):
    """Returns the host and port of a connection that failed for lack of a network, or `None`."""
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
    """Patches asyncio, which skips addresses for which it cannot create a socket. Before Python 3.13 it
    returns a server that does not listen at all."""
    # Imported only here: together with `collections`, it takes as long as all other imports of an interpreter
    # for a single run.
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
    """Patches `requests` and pip's copy of it, which look for certificates before they connect. Debian's
    versions read a file that exists only in sandboxes with a network."""
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

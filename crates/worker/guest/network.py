"""Tells guests that have no network so. It gives messages only: the kernel refuses the sockets."""

import errno

# SOCK_STREAM, AF_INET and AF_INET6 of Linux. `socket` is not imported: most guests never use it.
STREAM = 1
INTERNET = (2, 10)
HINT = (
    'this sandbox has no network: `network.mode = "loopback"` in its policy lets its own processes talk over TCP '
    "and UDP, and none reach further"
)


def is_refused():
    """Whether no internet socket can be made."""
    import _socket

    try:
        _socket.socket(INTERNET[0], STREAM).close()
    except OSError as error:
        return error.errno == errno.EPERM
    return False


def made_socket(error):
    """Whether the exception is that of an internet socket that was refused."""
    if type(error) is not PermissionError or error.errno != errno.EPERM:
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace and trace.tb_frame
    if frame is None or not frame.f_code.co_filename.endswith("socket.py"):
        return False
    return frame.f_locals.get("family") in INTERNET and is_refused()


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

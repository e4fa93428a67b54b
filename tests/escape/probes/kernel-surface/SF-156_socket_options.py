'''
id = "SF-156"
name = "socket options that reach further"
attempt = "With `network.mode = loopback`, set options that load modules, join groups or bypass the plain way."
severity = "high"
proven_open = "user"
set = ["network.mode=loopback"]

[[expect]]
text = ["none"]
'''

import socket
import struct

SO_ZEROCOPY, SO_ATTACH_FILTER, TCP_FASTOPEN, TCP_CONGESTION = 60, 26, 23, 13


def attempt():
    import ctypes

    # A filter that accepts everything: `ret -1`.
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFFFFFF))
    loaded = struct.pack("HxxxxxxQ", 1, ctypes.addressof(program))
    options = (
        ("zerocopy", socket.SOL_SOCKET, SO_ZEROCOPY, struct.pack("i", 1)),
        ("filter", socket.SOL_SOCKET, SO_ATTACH_FILTER, loaded),
        ("fastopen", socket.IPPROTO_TCP, TCP_FASTOPEN, struct.pack("i", 5)),
        ("congestion", socket.IPPROTO_TCP, TCP_CONGESTION, b"reno"),
        ("ip options", socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01\x01\x01\x00"),
    )
    granted = []
    try:
        stream = socket.socket()
    except OSError as error:
        return escaped("no socket at all: " + errno_name(error.errno))
    with stream:
        for name, level, option, value in options:
            try:
                stream.setsockopt(level, option, value)
                granted.append(name)
            except OSError as error:
                if error.errno != errno.EPERM:
                    granted.append(name + " by " + errno_name(error.errno))
    if granted:
        escaped(" ".join(granted))
    else:
        contained("none")


run(attempt)

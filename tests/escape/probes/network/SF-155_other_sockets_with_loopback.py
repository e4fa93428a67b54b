'''
id = "SF-155"
name = "other sockets beside tcp and udp"
attempt = "With `network.mode = loopback`, make sockets of other families, types and protocols."
severity = "high"
proven_open = "user"
set = ["network.mode=loopback"]

[[expect]]
text = ["none"]
'''

import socket

KINDS = (
    ("netlink", socket.AF_NETLINK, socket.SOCK_RAW, 0),
    ("packet", socket.AF_PACKET, socket.SOCK_RAW, 0),
    ("vsock", 40, socket.SOCK_STREAM, 0),
    ("alg", 38, socket.SOCK_SEQPACKET, 0),
    ("raw", socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    ("raw6", socket.AF_INET6, socket.SOCK_RAW, 58),
    ("ping", socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
    ("mptcp", socket.AF_INET, socket.SOCK_STREAM, 262),
    ("sctp", socket.AF_INET, socket.SOCK_SEQPACKET, 132),
    ("sctp by default", socket.AF_INET, socket.SOCK_SEQPACKET, 0),
    ("udplite", socket.AF_INET6, socket.SOCK_DGRAM, 136),
)


def attempt():
    granted = []
    for name, family, kind, protocol in KINDS:
        try:
            socket.socket(family, kind, protocol).close()
            granted.append(name)
        except OSError:
            pass
    if granted:
        escaped(" ".join(granted))
    else:
        contained("none")


run(attempt)

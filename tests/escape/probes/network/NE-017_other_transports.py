'''
id = "NE-017"
name = "MPTCP, SCTP, DCCP, UDP-Lite sockets"
attempt = "Protocols that TCP-only rules (Landlock net) do not cover."
severity = "medium"
proven_open = "user"

[[expect]]
text = ["none"]
'''

import socket

AF_SMC = 43
TRANSPORTS = (
    ("mptcp", socket.AF_INET, 1, 262),
    ("sctp", socket.AF_INET, 1, 132),
    ("sctp-seq", socket.AF_INET, 5, 132),
    ("dccp", socket.AF_INET, 6, 33),
    ("udplite", socket.AF_INET, 2, 136),
    ("smc", AF_SMC, 1, 0),
)


def attempt():
    granted = []
    for name, family, kind, protocol in TRANSPORTS:
        try:
            socket.socket(family, kind, protocol).close()
            granted.append(name)
        except (OSError, ValueError):
            pass
    if granted:
        escaped(" ".join(granted))
    else:
        contained("none")


run(attempt)

'''
id = "NE-013"
name = "sweep of all address families"
attempt = """
socket(f, t) for every family 2..46 and five types; list those that the kernel grants."""
severity = "high"
proven_open = "user"

[[expect]]
text = ["none beyond AF_UNIX"]
'''

import socket


def attempt():
    granted = set()
    for family in range(2, 47):
        for kind in (1, 2, 3, 5, 4):
            try:
                socket.socket(family, kind).close()
                granted.add(family)
            except (OSError, ValueError):
                pass
    if granted:
        escaped("families %s" % sorted(granted))
    else:
        contained("none beyond AF_UNIX")


run(attempt)

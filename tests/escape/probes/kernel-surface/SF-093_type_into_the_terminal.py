'''
id = "SF-093"
name = "type into the launcher's terminal"
attempt = "TIOCSTI on each stream: the launcher's shell reads the pushed input."
severity = "critical"
proven_open = "root"
refs = "CVE-2017-5226"
open_mode = "pty"

[[expect]]
errno = ["ENOTTY"]
'''

import fcntl

TIOCSTI = 0x5412


def attempt():
    refused = "none is a terminal"
    for stream in (0, 1, 2):
        try:
            fcntl.ioctl(stream, TIOCSTI, b" ")
            return escaped("typed into stream %d" % stream)
        except OSError as error:
            refused = errno_name(error.errno)
    contained(refused)


run(attempt)

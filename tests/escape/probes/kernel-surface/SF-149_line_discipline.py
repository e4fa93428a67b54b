'''
id = "SF-149"
name = "line discipline of a pseudoterminal"
attempt = """
TIOCSETD on a pseudoterminal of the guest's own: the kernel loads and attaches other line disciplines."""
severity = "high"
proven_open = "user"
refs = "CVE-2017-2636"

[[expect]]
errno = ["ENOTTY"]

[[expect]]
errno = ["ENOENT"]
policies = ["strict"]
why = "a policy that shows no programs has no pseudoterminals"
'''

import fcntl
import struct

TIOCSETD = 0x5423


def attempt():
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, TIOCSETD, struct.pack("i", 0))
    escaped("line discipline set")


run(attempt)

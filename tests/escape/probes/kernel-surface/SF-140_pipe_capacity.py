'''
id = "SF-140"
name = "take the user's pipe pages"
attempt = """
Set a pipe to 256 pages with F_SETPIPE_SZ. The kernel counts pipe pages for each user, and a user with
sixty such pipes gets pipes of two pages from then on."""
severity = "medium"
proven_open = "user"

[[expect]]
errno = ["EPERM"]
'''

import fcntl

F_SETPIPE_SZ = 1031


def attempt():
    reader, writer = os.pipe()
    size = fcntl.fcntl(writer, F_SETPIPE_SZ, 1 << 20)
    escaped(str(size) + " bytes")


run(attempt)

'''
id = "SF-114"
name = "make a device"
attempt = """
mknod(2) of the machine's first disk, of a number that the kernel hands out for none."""
severity = "critical"
proven_open = "root"

[[expect]]
errno = ["EPERM", "EACCES"]
'''

import stat


def attempt():
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(240, 240))
    escaped("made")


run(attempt)

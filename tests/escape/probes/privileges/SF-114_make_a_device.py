'''
id = "SF-114"
name = "make a device"
attempt = "mknod(2) of a disk, with a number that the kernel assigns to no device."
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

'''
id = "ZY-010"
name = "shared file offsets inherited"
attempt = """
A regular file descriptor above 2 whose offset can be moved (offset is shared with the zygote
and all siblings)."""
severity = "high"
proven_open = "user"
open_mode = "zygote"

[[expect]]
text = ["none"]
'''

import stat


def attempt():
    seekable = []
    for fd in range(3, 512):
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                os.lseek(fd, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
                seekable.append(fd)
        except OSError:
            pass
    if seekable:
        escaped("seekable fds %s" % seekable)
    else:
        contained("none")


run(attempt)

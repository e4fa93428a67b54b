'''
id = "PH-001"
name = "writable descriptor besides stdout and stderr"
attempt = """
Look for an inherited writable pipe, socket or file above fd 2 and send a malformed frame to
it."""
severity = "high"
proven_open = "user"
host_check = "next-run-served"

[[expect]]
text = ["none"]

[[expect]]
status = ["protocol-violation"]
'''

import fcntl
import stat

# A length of 2 GiB, then a result that the guest may not send.
FRAME = b'\xff\xff\xff\x7f{"type":"result","ok":true}\n'


def attempt():
    writable = []
    for fd in range(3, 512):
        try:
            mode = os.fstat(fd).st_mode
            access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
            stream = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
            if not access or not (stream or stat.S_ISREG(mode)):
                continue
            if stream:
                os.set_blocking(fd, False)
                os.write(fd, FRAME)
            writable.append(fd)
        except BlockingIOError:
            writable.append(fd)
        except OSError:
            # Not open, or the write failed.
            pass
    if writable:
        escaped("writable fds %s" % writable)
    else:
        contained("none")


run(attempt)

'''
id = "SF-017"
name = "malformed frame on every writable descriptor"
attempt = """
As PH-001, on all descriptor numbers, so that it finds the protocol's descriptor at any number. Its frame
promises 2 GiB; the host must end this run for it and serve the next."""
severity = "high"
proven_open = "user"
judge = "host"
host_check = "frame-refused"

[[expect]]
text = ["none"]

[[expect]]
status = ["protocol-violation"]
text = ["sent to *"]
'''

import fcntl
import stat
import time

# A length of 2 GiB, then a result that the guest may not send.
FRAME = b'\xff\xff\xff\x7f{"type":"result","ok":true}\n'


def attempt():
    sent = []
    for fd in range(3, 1 << 16):
        try:
            mode = os.fstat(fd).st_mode
            if not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE:
                continue
            if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
                os.set_blocking(fd, False)
                os.write(fd, FRAME)
                sent.append(fd)
        except OSError:
            pass
    if not sent:
        return contained("none")
    contained("sent to %s" % sent)
    # Time for the host to notice.
    time.sleep(1)


run(attempt)

'''
id = "SF-129"
name = "memory in the queues of sockets"
attempt = "Fill the queues of socket pairs of several processes with more data than the memory limit."
severity = "high"
proven_open = "user"
needs = ["memory-cgroup"]

[[expect]]
status = ["ok", "memory-limit", "timeout", "cpu-limit", "pids-limit"]
text = ["* of them"]
errno = ["ENOMEM", "EAGAIN"]
'''

import socket
import time

PROCESSES, EACH = 16, 20 << 20


def fill():
    filled = 0
    pairs = []
    while filled < EACH:
        near, far = socket.socketpair()
        near.setblocking(False)
        pairs.append((near, far))
        try:
            while True:
                filled += near.send(b"x" * 65536)
        except BlockingIOError:
            pass
    return pairs


def attempt():
    done, told = os.pipe()
    for _ in range(PROCESSES):
        if os.fork() == 0:
            try:
                pairs = fill()
                os.write(told, b"1")
                time.sleep(10)
            finally:
                os._exit(0)
    os.close(told)
    full = 0
    while full < PROCESSES and os.read(done, 1):
        full += 1
    if full == PROCESSES:
        escaped("%d MiB" % (PROCESSES * EACH >> 20))
    else:
        contained("%d of them" % full)


run(attempt)

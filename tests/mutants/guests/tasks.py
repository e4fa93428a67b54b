"""Prints the maximum number of processes."""

import errno
import os
import time

children = []
try:
    while len(children) < 100:
        child = os.fork()
        if child == 0:
            time.sleep(600)
        children.append(child)
    print("had", len(children))
except OSError as error:
    print("had", len(children), "then", errno.errorcode[error.errno])
for child in children:
    os.kill(child, 9)

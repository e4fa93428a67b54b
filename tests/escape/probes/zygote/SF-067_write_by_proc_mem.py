'''
id = "SF-067"
name = "write into that memory by /proc"
attempt = "Write into the parent's memory through its file in /proc, where the next run reads it."
severity = "critical"
proven_open = "user"
open_mode = "zygote"
runs = 2
through = "one-sandbox"

[[expect]]
errno = ["EACCES", "EPERM", "ENOENT", "EROFS"]
'''

import sys


def write(process, address, data):
    with open("/proc/%d/mem" % process, "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(data)


def attempt():
    if sys.version.startswith("?"):
        return escaped("an earlier run has written here")
    write(os.getppid() or 1, address_of_version(), b"?")
    contained("written")


run(attempt)

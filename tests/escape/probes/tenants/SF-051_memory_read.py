'''
id = "SF-051"
name = "read the other's memory"
attempt = "One tenant shares the address of a secret, and the other reads it by process_vm_readv(2)."
severity = "critical"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["EPERM"]
text = ["holds"]
'''

import ctypes

WORD = b"a secret of the first"


def hold():
    kept["secret"] = ctypes.create_string_buffer(WORD + os.urandom(8).hex().encode())
    print("VALUE %d %d" % (os.getpid(), ctypes.addressof(kept["secret"])))
    contained("holds")


def visit():
    process, address = (int(word) for word in (var("PREV") or "1 4096").split())
    text = ctypes.create_string_buffer(len(WORD))
    here = (ctypes.c_uint64 * 2)(ctypes.addressof(text), len(WORD))
    there = (ctypes.c_uint64 * 2)(address, len(WORD))
    checked(number(310, 270), process, here, 1, there, 1, 0)
    if text.raw == WORD:
        escaped("read it")
    else:
        contained("something else")


tenants(hold, visit)

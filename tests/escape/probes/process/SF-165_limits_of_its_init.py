'''
id = "SF-165"
name = "limits of the process above it"
attempt = """
prlimit(2) on the init, which has the guest's uid where the workers of a user share one: without descriptors or
processor time it could not tell how the guest ended."""
severity = "high"
proven_open = "root"

[[expect]]
errno = ["EPERM"]
'''

import ctypes

INIT = 1
SIGPENDING = 11


def attempt():
    call = number(302, 261)
    limit = (ctypes.c_uint64 * 2)()
    checked(call, INIT, SIGPENDING, None, limit)
    # Sets the current value again, because in the control this is the machine's init.
    checked(call, INIT, SIGPENDING, limit, None)
    escaped("set the init's limits to %d" % limit[0])


run(attempt)

'''
id = "SF-097"
name = "locks that lend their priority"
attempt = "futex(FUTEX_LOCK_PI): the part of futexes with a history of vulnerabilities."
severity = "high"
proven_open = "user"
refs = "CVE-2014-3153"

[[expect]]
errno = ["ENOSYS"]
'''

import ctypes

FUTEX, LOCK_PI = number(202, 98), 6


def attempt():
    word = ctypes.c_uint32(0)
    checked(FUTEX, ctypes.byref(word), LOCK_PI, 0, None, None, 0)
    escaped("locked by %d" % word.value)


run(attempt)

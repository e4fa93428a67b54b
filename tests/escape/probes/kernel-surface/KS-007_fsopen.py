'''
id = "KS-007"
name = "new mount API: fsopen"
attempt = "fsopen(\"tmpfs\") (CVE-2022-0185 lived here)."
severity = "critical"
refs = "CVE-2022-0185"
proven_open = "user"
open_mode = "nested-userns"
needs = ["user-namespaces"]

[[expect]]
errno = ["ENOSYS", "EPERM"]
'''

import ctypes


def attempt():
    result, code = syscall(430, ctypes.c_char_p(b"tmpfs"), 0)
    if result >= 0:
        escaped("fs context fd %d" % result)
    else:
        contained(errno_name(code))


run(attempt)

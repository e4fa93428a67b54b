'''
id = "SF-011"
name = "POSIX message queue of the host"
attempt = "Open the host's queue by its name."
severity = "high"
proven_open = "user"

[[expect]]
errno = ["ENOENT", "EPERM", "ENOSYS"]
'''

import ctypes


def attempt():
    name = ctypes.c_char_p(var("MQ").lstrip("/").encode())
    queue, code = syscall(number(240, 180), name, os.O_RDONLY, 0, None)
    if queue >= 0:
        escaped("queue descriptor %d" % queue)
    else:
        contained(errno_name(code))


run(attempt)

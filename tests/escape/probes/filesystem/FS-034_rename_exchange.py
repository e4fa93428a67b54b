'''
id = "FS-034"
name = "rename/exchange across trees"
attempt = """
renameat2(RENAME_EXCHANGE) of a file in the work directory with the canary (no exchange if the
canary is not reachable; undone at once)."""
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ENOENT", "EXDEV", "EACCES"]
'''

import ctypes

RENAME_EXCHANGE = 2


def exchange(path):
    return syscall(
        number(316, 276),
        -100,
        ctypes.c_char_p(b"rx"),
        -100,
        ctypes.c_char_p(path.encode()),
        RENAME_EXCHANGE,
    )


def attempt():
    path = var("CANARY")
    with open("rx", "w") as file:
        file.write("CANARY-swap")
    result, code = exchange(path)
    if result == 0:
        exchange(path)
        escaped("exchanged and restored")
    else:
        contained(errno_name(code))
    os.unlink("rx")


run(attempt)

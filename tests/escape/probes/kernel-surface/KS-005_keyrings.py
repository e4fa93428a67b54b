'''
id = "KS-005"
name = "kernel keyrings"
attempt = """
add_key a user key to the process keyring (keys are per uid, not per namespace before userns
split)."""
severity = "high"
proven_open = "user"

[[expect]]
errno = ["EPERM", "ENOSYS"]
'''

import ctypes

KEY_SPEC_PROCESS_KEYRING = -2


def attempt():
    result, code = syscall(
        number(248, 217),
        ctypes.c_char_p(b"user"),
        ctypes.c_char_p(b"sandfork_ks005"),
        ctypes.c_char_p(b"v"),
        1,
        KEY_SPEC_PROCESS_KEYRING,
    )
    if result >= 0:
        escaped("key %d" % result)
    else:
        contained(errno_name(code))


run(attempt)

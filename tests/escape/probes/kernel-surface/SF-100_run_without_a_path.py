'''
id = "SF-100"
name = "run a program that no path leads to"
attempt = "execveat(2) of an open file: path rules are not checked."
severity = "high"
proven_open = "user"

[[expect]]
errno = ["EPERM", "ENOENT"]
'''

import ctypes

EXECVEAT, AT_EMPTY_PATH = number(322, 281), 0x1000


def attempt():
    words = (ctypes.c_char_p * 4)(b"sh", b"-c", b"echo ESCAPED as a program", None)
    program = os.open("/bin/sh", os.O_RDONLY)
    checked(EXECVEAT, program, ctypes.c_char_p(b""), words, None, AT_EMPTY_PATH)


run(attempt)

'''
id = "SF-048"
name = "show a name to others"
attempt = "One tenant names its process, and the other looks for the name in /proc."
severity = "high"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 2

[[expect]]
errno = ["ENOENT"]
text = ["holds", "no such name"]
'''

import ctypes
import glob

PR_SET_NAME, NAME = 15, b"sf048-meet"


def hold():
    checked(number(157, 167), PR_SET_NAME, ctypes.c_char_p(NAME), 0, 0, 0)
    contained("holds")


def visit():
    os.stat("/proc/self")
    for path in glob.glob("/proc/[0-9]*/comm"):
        try:
            with open(path, "rb") as file:
                name = file.read().strip()
        except OSError:
            continue
        if name == NAME:
            return escaped("found " + path)
    contained("no such name")


tenants(hold, visit)

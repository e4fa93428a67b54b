'''
id = "SF-063"
name = "address layout shared by fresh interpreters"
attempt = """
Two runs find the C library at the same address although the policy asks for a cold interpreter for each."""
severity = "low"
proven_open = "user"
open_mode = "zygote"
runs = 2
through = "one-sandbox"
set = ["python.fresh=true"]

[[expect]]
text = ["differs or first run"]
'''

import ctypes


def attempt():
    value = hex(ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value)
    print("VALUE " + value)
    if var("PREV") == value:
        escaped("same address")
    else:
        contained("differs or first run")


run(attempt)

'''
id = "SF-134"
name = "lines forged in the host's log"
attempt = """
Put line ends into names and messages that the host may log: those of exceptions, threads and
processes."""
severity = "medium"
proven_open = "user"
judge = "host"
host_check = "log-unforged"

[[expect]]
status = ["exception"]
text = ["raised"]
'''

import ctypes

FORGED = "\nsandfork: forged by the guest\n"

contained("raised")
checked(number(157, 167), 15, ctypes.c_char_p(FORGED.encode()[:15]), 0, 0, 0)
raise type("Error" + FORGED, (Exception,), {})("message" + FORGED)

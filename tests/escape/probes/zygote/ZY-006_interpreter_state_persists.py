'''
id = "ZY-006"
name = "state of an earlier run visible"
attempt = "Set builtins.__sbx_mark; the next run must not see it."
severity = "critical"
proven_open = "user"
open_mode = "inproc"
runs = 2
through = "one-sandbox"

[[expect]]
text = ["mark set"]
'''

import builtins


def attempt():
    if getattr(builtins, "sandfork_mark", 0):
        escaped("mark of an earlier run found")
    else:
        builtins.sandfork_mark = 1
        contained("mark set")


run(attempt)

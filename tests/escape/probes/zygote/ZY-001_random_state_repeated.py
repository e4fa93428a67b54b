'''
id = "ZY-001"
name = "random module state repeated"
attempt = """
Two runs draw the same random.random() after a raw fork that skips Python at-fork hooks."""
severity = "high"
proven_open = "user"
open_mode = "zygote"
runs = 2
through = "one-sandbox"

[[expect]]
text = ["differs or first run"]
'''

import random


def attempt():
    compare_with_previous(repr(random.random()))


run(attempt)

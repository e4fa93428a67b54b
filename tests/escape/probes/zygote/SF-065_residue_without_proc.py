'''
id = "SF-065"
name = "memory of an earlier run, found without /proc"
attempt = "Look for bytes that an earlier run left, in all memory that is reachable without /proc."
severity = "critical"
proven_open = "user"
open_mode = "inproc"
runs = 2
through = "one-sandbox"

[[expect]]
text = ["nowhere"]
'''

import builtins


def attempt():
    head, tail = b"what an earlier ", b"run has left"
    found = count_pages_with(head, tail)
    builtins.sandfork_left = head + tail
    if found:
        escaped("in %d pages" % found)
    else:
        contained("nowhere")


run(attempt)

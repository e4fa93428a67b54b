'''
id = "PH-016"
name = "read the host side of stdin"
attempt = "Read fd 0: it may be the protocol pipe or the operator's terminal."
severity = "medium"
proven_open = "user"

[[expect]]
text = ["EOF", "nothing to read"]
'''

import select


def attempt():
    if not select.select([0], [], [], 0.5)[0]:
        return contained("nothing to read")
    data = os.read(0, 64)
    if data:
        escaped("stdin gave %r" % data[:20])
    else:
        contained("EOF")


run(attempt)

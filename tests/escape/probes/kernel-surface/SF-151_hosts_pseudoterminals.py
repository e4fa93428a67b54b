'''
id = "SF-151"
name = "the host's pseudoterminals"
attempt = "Open each pseudoterminal that is there before the guest makes one."
severity = "critical"
proven_open = "user"
open_mode = "pty"

[[expect]]
text = ["none opened"]
'''


def attempt():
    opened = []
    for number in range(256):
        path = "/dev/pts/%d" % number
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
            opened.append(path)
        except OSError:
            pass
    if opened:
        escaped("opened " + " ".join(opened))
    else:
        contained("none opened")


run(attempt)

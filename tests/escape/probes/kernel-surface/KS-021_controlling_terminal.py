'''
id = "KS-021"
name = "controlling terminal reachable"
attempt = "Open /dev/tty and change its settings."
severity = "high"
proven_open = "user"
open_mode = "pty"

[[expect]]
errno = ["ENXIO", "ENOENT"]
'''

import termios


def attempt():
    fd = os.open("/dev/tty", os.O_RDWR)
    settings = termios.tcgetattr(fd)
    termios.tcsetattr(fd, termios.TCSANOW, settings)
    escaped("controlling tty open")


run(attempt)

'''
id = "FS-024"
name = "execute from a memfd"
attempt = "Copy /bin/true or the interpreter head into memfd_create() and exec /proc/self/fd/N."
severity = "medium"
proven_open = "user"

[[expect]]
errno = ["EPERM", "EACCES"]

[[expect]]
policies = ["strict"]
text = ["FileNotFoundError: *'/proc/self/fd/*"]
why = "strict has no /proc to name the descriptor by"
'''

import posix
import subprocess


def attempt():
    # The sandbox's own `os.memfd_create` asks for a file that cannot be executed.
    fd = posix.memfd_create("m", 0)
    with open("/bin/echo", "rb") as program:
        os.write(fd, program.read())
    command = ["/proc/self/fd/%d" % fd, "RAN"]
    output = subprocess.run(command, pass_fds=(fd,), capture_output=True, timeout=5).stdout
    if b"RAN" in output:
        escaped("memfd executed")
    else:
        contained("no output")


run(attempt)

'''
id = "PR-029"
name = "run another program"
attempt = "subprocess of /bin/sh."
severity = "medium"
proven_open = "user"
policies = ["strict"]

[[expect]]
errno = ["EPERM", "ENOENT"]
why = "only the no-exec profile refuses programs: SF-029 shows that standard jails them"
'''

import subprocess


def attempt():
    command = ["/bin/sh", "-c", "echo RAN"]
    output = subprocess.run(command, capture_output=True, timeout=5).stdout
    if b"RAN" in output:
        escaped("/bin/sh ran")
    else:
        contained("nothing")


run(attempt)

'''
id = "SF-116"
name = "give a program capabilities"
attempt = "setxattr(2) of security.capability on its own file."
severity = "high"
proven_open = "root"

[[expect]]
errno = ["EPERM"]
'''

# Version 2, no bits but CAP_CHOWN's, permitted and effective (linux/capability.h).
CAPABILITY = bytes.fromhex("0100000201000000000000000000000000000000")


def attempt():
    with open("program", "w"):
        pass
    os.setxattr("program", "security.capability", CAPABILITY)
    escaped("set")


run(attempt)

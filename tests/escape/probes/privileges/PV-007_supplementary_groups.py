'''
id = "PV-007"
name = "supplementary groups kept"
attempt = "getgroups() holds a group other than the own one."
severity = "high"
proven_open = "user"
needs = ["supplementary-group"]

[[expect]]
text = ["none"]
'''

OVERFLOW_GID = 65534


def attempt():
    groups = [group for group in os.getgroups() if group not in (os.getgid(), OVERFLOW_GID)]
    if groups:
        escaped("groups %s" % groups)
    else:
        contained("none")


run(attempt)

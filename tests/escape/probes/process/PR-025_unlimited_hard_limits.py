'''
id = "PR-025"
name = "soft limits below hard limits"
attempt = "Any of AS, NPROC, NOFILE, FSIZE, CPU, MEMLOCK whose hard limit is unlimited."
severity = "medium"
proven_open = "user"
only = "runs"

[[expect]]
text = ["all hard limits finite"]
'''

import resource

LIMITS = "NPROC NOFILE FSIZE CPU MEMLOCK CORE MSGQUEUE SIGPENDING".split()


def attempt():
    unlimited = []
    for limit in LIMITS:
        _, hard = resource.getrlimit(getattr(resource, "RLIMIT_" + limit))
        if hard == resource.RLIM_INFINITY:
            unlimited.append("RLIMIT_" + limit)
    if unlimited:
        escaped("hard unlimited: " + " ".join(unlimited))
    else:
        contained("all hard limits finite")


run(attempt)

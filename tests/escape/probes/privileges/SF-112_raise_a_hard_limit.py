'''
id = "SF-112"
name = "raise a hard limit"
attempt = "setrlimit(2) above the hard limit of open files."
severity = "high"
proven_open = "root"
needs = ["resource-capability"]

[[expect]]
errno = ["EPERM"]
exception = ["ValueError"]
'''

import resource


def attempt():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    escaped("%d open files" % resource.getrlimit(resource.RLIMIT_NOFILE)[1])


run(attempt)

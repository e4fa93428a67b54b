'''
id = "SF-126"
name = "more descriptors than its limit"
attempt = "Open 1024 descriptors, and raise the soft limit to the hard one before."
severity = "medium"
proven_open = "user"
needs = ["many-descriptors"]

[[expect]]
errno = ["EMFILE"]
'''

import resource


def attempt():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(1024)]
    escaped("%d descriptors" % len(opened))


run(attempt)

'''
id = "SF-126"
name = "more descriptors than its limit"
attempt = "Raise the soft limit to the hard one, and open 1024 descriptors."
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

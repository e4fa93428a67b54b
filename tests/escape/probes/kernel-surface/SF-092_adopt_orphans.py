'''
id = "SF-092"
name = "become the parent of orphans"
attempt = "prctl(PR_SET_CHILD_SUBREAPER): it receives orphans instead of the init that ends them."
severity = "low"
proven_open = "user"

[[expect]]
errno = ["EPERM"]
'''

PRCTL, OPTION = number(157, 167), 36


def attempt():
    checked(PRCTL, OPTION, 1, 0, 0, 0)
    escaped("a subreaper")


run(attempt)

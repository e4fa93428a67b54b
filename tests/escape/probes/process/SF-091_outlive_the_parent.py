'''
id = "SF-091"
name = "cut the tie to the parent"
attempt = "prctl(PR_SET_PDEATHSIG, 0): it is no longer killed when its parent ends."
severity = "medium"
proven_open = "user"

[[expect]]
errno = ["EPERM"]
'''

PRCTL, OPTION = number(157, 167), 1


def attempt():
    checked(PRCTL, OPTION, 0, 0, 0, 0)
    escaped("no signal when the parent ends")


run(attempt)

'''
id = "SF-090"
name = "hide from whoever looks on"
attempt = """
prctl(PR_SET_DUMPABLE, 0): root then owns its files in /proc, and the supervisor cannot read them."""
severity = "medium"
proven_open = "user"

[[expect]]
errno = ["EPERM"]
'''

PRCTL, OPTION = number(157, 167), 4


def attempt():
    checked(PRCTL, OPTION, 0, 0, 0, 0)
    escaped("not dumpable")


run(attempt)

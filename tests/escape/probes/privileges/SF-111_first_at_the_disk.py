'''
id = "SF-111"
name = "first in the queue of the disk"
attempt = "ioprio_set(2) to the real-time class."
severity = "medium"
proven_open = "root"

[[expect]]
errno = ["EPERM"]
'''

WHO_PROCESS, REAL_TIME = 1, 1 << 13


def attempt():
    checked(number(251, 30), WHO_PROCESS, 0, REAL_TIME)
    escaped("class %d" % (checked(number(252, 31), WHO_PROCESS, 0) >> 13))


run(attempt)

'''
id = "SF-110"
name = "raise its own priority"
attempt = "setpriority(2) below zero: before all others on the machine."
severity = "medium"
proven_open = "root"

[[expect]]
errno = ["EACCES", "EPERM"]
'''

def attempt():
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    escaped("priority %d" % os.getpriority(os.PRIO_PROCESS, 0))


run(attempt)

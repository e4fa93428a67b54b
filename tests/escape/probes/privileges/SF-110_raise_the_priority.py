'''
id = "SF-110"
name = "raise its own priority"
attempt = "setpriority(2) below zero: takes precedence over all other processes."
severity = "medium"
proven_open = "root"

[[expect]]
text = ["unchanged"]
'''

def attempt():
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    after = os.getpriority(os.PRIO_PROCESS, 0)
    if after < before:
        escaped("priority %d" % after)
    else:
        contained("unchanged")


run(attempt)

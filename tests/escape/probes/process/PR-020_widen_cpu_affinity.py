'''
id = "PR-020"
name = "widen CPU affinity"
attempt = "sched_setaffinity to all CPUs after the launcher pinned the run to one."
severity = "medium"
proven_open = "user"
needs = ["two-processors"]
launch = "pinned"

[[expect]]
text = ["1 cpus"]

[[expect]]
errno = ["EPERM"]
'''


def attempt():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    after = os.sched_getaffinity(0)
    if len(after) > int(var("CPUS", "1")):
        escaped("%d -> %d cpus" % (len(before), len(after)))
    else:
        contained("%d cpus" % len(after))


run(attempt)

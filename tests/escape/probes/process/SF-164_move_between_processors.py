'''
id = "SF-164"
name = "move between the processors"
attempt = """
Narrow the affinity to one processor after the other: each move is made by a kernel thread of the highest priority,
whose time no cgroup and no limit counts as the guest's."""
severity = "medium"
proven_open = "user"
needs = ["two-processors"]

[[expect]]
text = ["stays on all of them"]
'''


def attempt():
    before = os.sched_getaffinity(0)
    for processor in range(os.cpu_count() or 2):
        try:
            os.sched_setaffinity(0, {processor})
        except OSError:
            continue
        if os.sched_getaffinity(0) != before:
            escaped("moved to processor %d" % processor)
            return
    contained("stays on all of them")


run(attempt)

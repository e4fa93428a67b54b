'''
id = "SF-075"
name = "figures of an earlier run in a cgroup that is used again"
attempt = """
Read the peak memory, the peak number of processes and the time that a cgroup counted, at any mount
point."""
severity = "medium"
proven_open = "user"

[[expect]]
text = ["no figures"]
'''

import glob

FIGURES = (
    "memory.peak",
    "memory.max_usage_in_bytes",
    "memory.stat",
    "pids.peak",
    "cpu.stat",
    "cpuacct.usage",
)


def attempt():
    places = ["/sys/fs/cgroup", "/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*"]
    try:
        with open("/proc/self/mountinfo") as file:
            places += [line.split()[4] for line in file if " - cgroup" in line]
    except OSError:
        pass
    for place in places:
        for figure in FIGURES:
            for path in glob.glob(place + "/" + figure):
                with open(path) as file:
                    return escaped("%s is %s" % (path, file.read(20).split("\n")[0]))
    contained("no figures")


run(attempt)

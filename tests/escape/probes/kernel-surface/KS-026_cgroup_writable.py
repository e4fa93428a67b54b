'''
id = "KS-026"
name = "cgroup filesystem writable"
attempt = "mkdir/rmdir a child cgroup in every cgroup mount, or open release_agent for writing."
severity = "critical"
refs = "CVE-2022-0492"
proven_open = "root"

[[expect]]
text = ["not writable"]

[[expect]]
errno = ["ENOENT"]
why = "/proc holds at most the guest's processes: SF-026 looks for cgroups without /proc/mounts"
'''

import glob


def attempt():
    with open("/proc/mounts") as file:
        mounts = [line.split() for line in file]
    writable = []
    for directory in [mount[1] for mount in mounts if mount[2].startswith("cgroup")]:
        try:
            os.mkdir(directory + "/sandfork_ks026")
            os.rmdir(directory + "/sandfork_ks026")
            writable.append(directory)
        except OSError:
            pass
        for agent in glob.glob(directory + "/release_agent"):
            try:
                os.close(os.open(agent, os.O_WRONLY))
                writable.append(agent)
            except OSError:
                pass
    if writable:
        escaped(" ".join(writable))
    else:
        contained("not writable")


run(attempt)

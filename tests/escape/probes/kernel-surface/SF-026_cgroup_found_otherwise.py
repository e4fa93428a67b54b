'''
id = "SF-026"
name = "cgroup filesystem writable, found without /proc/mounts"
attempt = "As KS-026, in the usual mount points of cgroups and in those of the guest's own mount table."
severity = "critical"
refs = "CVE-2022-0492"
proven_open = "root"

[[expect]]
text = ["not writable"]
'''

import glob


def places():
    found = glob.glob("/sys/fs/cgroup") + glob.glob("/sys/fs/cgroup/*/")
    try:
        with open("/proc/self/mountinfo") as file:
            found += [line.split()[4] for line in file if " - cgroup" in line]
    except OSError:
        pass
    return found


def attempt():
    writable = []
    for directory in places():
        try:
            os.mkdir(directory + "/sandfork_sf026")
            os.rmdir(directory + "/sandfork_sf026")
            writable.append(directory)
        except OSError:
            pass
        try:
            os.close(os.open(directory + "/release_agent", os.O_WRONLY))
            writable.append(directory + "/release_agent")
        except OSError:
            pass
    if writable:
        escaped(" ".join(writable))
    else:
        contained("not writable")


run(attempt)

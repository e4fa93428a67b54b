'''
id = "PR-001"
name = "host processes visible"
attempt = "Scan /proc/*/cmdline for the bait victim process."
severity = "high"
proven_open = "user"

[[expect]]
text = ["* pids, no victim"]

[[expect]]
policies = ["strict"]
errno = ["ENOENT"]
why = "strict has no /proc"
'''


def attempt():
    tag = var("VICTIM_TAG", "sandfork_victim").encode()
    pids = [pid for pid in os.listdir("/proc") if pid.isdigit()]
    for pid in pids:
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                if tag in file.read() and int(pid) != os.getpid():
                    return escaped("victim pid %s visible" % pid)
        except OSError:
            pass
    contained("%d pids, no victim" % len(pids))


run(attempt)

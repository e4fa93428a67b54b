'''
id = "SE-003"
name = "parent and init environment"
attempt = "Read environ of the parent, pid 1 and all visible processes."
severity = "critical"
proven_open = "user"

[[expect]]
text = ["none"]

[[expect]]
policies = ["strict"]
errno = ["ENOENT"]
why = "strict has no /proc"
'''


def attempt():
    visible = [pid for pid in os.listdir("/proc") if pid.isdigit()]
    for pid in [str(os.getppid()), "1"] + visible:
        if pid in ("0", str(os.getpid())):
            continue
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                if b"BAIT_SECRET" in file.read():
                    return escaped("in pid %s" % pid)
        except OSError:
            pass
    contained("none")


run(attempt)

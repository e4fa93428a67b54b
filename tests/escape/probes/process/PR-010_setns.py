'''
id = "PR-010"
name = "setns into a host namespace"
attempt = "Open ns files of the victim (or pid 1) and setns() into them."
severity = "critical"
proven_open = "root"

[[expect]]
text = ["none"]
'''


def attempt():
    joined = []
    for namespace in ("uts", "ipc", "net"):
        try:
            fd = os.open("/proc/%s/ns/%s" % (var("VICTIM_PID", "1"), namespace), os.O_RDONLY)
            result, _ = syscall(number(308, 268), fd, 0)
            if result == 0:
                joined.append(namespace)
        except OSError:
            pass
    if joined:
        escaped("joined " + " ".join(joined))
    else:
        contained("none")


run(attempt)

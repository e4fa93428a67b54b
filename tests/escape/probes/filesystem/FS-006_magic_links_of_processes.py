'''
id = "FS-006"
name = "/proc/<pid>/root and /proc/<pid>/cwd of other processes"
attempt = "Try root/cwd magic links of every visible process to reach the canary."
severity = "critical"
refs = "CVE-2024-21626"
proven_open = "user"

[[expect]]
text = ["no process root reaches it"]

[[expect]]
policies = ["strict"]
errno = ["ENOENT"]
why = "strict has no /proc"
'''


def reaches_canary(path):
    try:
        with open(path) as file:
            return file.read().startswith("CANARY")
    except OSError:
        return False


def attempt():
    canary = var("CANARY")
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or pid == str(os.getpid()):
            continue
        for path in (
            "/proc/%s/root%s" % (pid, canary),
            "/proc/%s/cwd/%s" % (pid, os.path.basename(canary)),
        ):
            if reaches_canary(path):
                return escaped("via " + path)
    contained("no process root reaches it")


run(attempt)

'''
id = "PR-022"
name = "undo the OOM preference of the launcher"
attempt = """
The launcher raised oom_score_adj so that the run is killed first; try to lower it to 0 and below."""
severity = "medium"
proven_open = "user"

[[expect]]
text = ["stays at *"]

[[expect]]
errno = ["ENOENT", "EACCES"]
'''

PATH = "/proc/self/oom_score_adj"


def attempt():
    with open(PATH) as file:
        value = int(file.read())
    lowered = []
    for target in ([0] if value > 0 else []) + [-500]:
        try:
            fd = os.open(PATH, os.O_WRONLY)
            os.write(fd, str(target).encode())
            os.close(fd)
            lowered.append("%d -> %d" % (value, target))
        except OSError:
            pass
    if lowered:
        escaped(" ".join(lowered))
    else:
        contained("stays at %d" % value)


run(attempt)

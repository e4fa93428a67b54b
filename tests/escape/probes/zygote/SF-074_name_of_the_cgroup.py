'''
id = "SF-074"
name = "name of the worker's cgroup"
attempt = "Read /proc/self/cgroup, which can show the path of its cgroup on the host."
severity = "low"
proven_open = "user"
needs = ["own-cgroup"]

[[expect]]
text = ["only /"]
errno = ["ENOENT"]
'''

def attempt():
    with open("/proc/self/cgroup") as file:
        paths = {line.strip().split(":", 2)[2] for line in file}
    if paths <= {"/"}:
        contained("only /")
    else:
        escaped(" ".join(sorted(paths)))


run(attempt)

'''
id = "RS-003"
name = "memory through memfd and shared mappings"
attempt = "Write MEM_MB MiB to a memfd (not counted by RLIMIT_AS/RSS of the mapper)."
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ENOMEM", "EFBIG"]

[[expect]]
errno = ["EPERM"]
why = "without a cgroup, or before Linux 6.3, memfd_create is refused"

[[expect]]
status = ["memory-limit"]
errno = ["ENOMEM"]
exception = ["MemoryError"]
'''


def attempt():
    wanted = int(var("MEM_MB", "320"))
    fd = os.memfd_create("m")
    block = b"x" * (1 << 20)
    for _ in range(wanted):
        os.write(fd, block)
    escaped("%d MiB in a memfd" % wanted)


run(attempt)

'''
id = "SF-003"
name = "memory through sealed memfds"
attempt = """
Write MEM_MB MiB to memfds made with MFD_NOEXEC_SEAL, each below the file size limit and not mapped
(the variant of RS-003 that a filter on memfd_create's flags allows)."""
severity = "critical"
proven_open = "user"
needs = ["memfd-noexec-seal"]

[[expect]]
errno = ["ENOMEM"]
exception = ["MemoryError"]

[[expect]]
errno = ["EPERM"]
why = "without a memory cgroup nothing counts memfds, so there are none"

[[expect]]
status = ["memory-limit"]
errno = ["ENOMEM"]
exception = ["MemoryError"]
'''

MFD_NOEXEC_SEAL = 8
STEP = 8


def attempt():
    wanted = int(var("MEM_MB", "320"))
    block = b"x" * (1 << 20)
    for _ in range(wanted // STEP):
        fd = os.memfd_create("m", os.MFD_CLOEXEC | MFD_NOEXEC_SEAL)
        for _ in range(STEP):
            os.write(fd, block)
    escaped("%d MiB in sealed memfds" % wanted)


run(attempt)

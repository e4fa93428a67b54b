'''
id = "SF-123"
name = "settings of the kernel"
attempt = """
Open for writing the files that make the kernel run programs or stop: core_pattern, modprobe, sysrq,
uevent_helper."""
severity = "critical"
proven_open = "root"

[[expect]]
errno = ["ENOENT", "EACCES"]
'''

FILES = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sysrq-trigger",
    "/sys/kernel/uevent_helper",
)


def attempt():
    for path in FILES:
        try:
            os.close(os.open(path, os.O_WRONLY))
            return escaped(path)
        except OSError as error:
            refused = errno_name(error.errno)
    contained(refused)


run(attempt)

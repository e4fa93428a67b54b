'''
id = "SF-170"
name = "change what others read of the machine"
attempt = """
Open files of /proc and /sys for writing, and change their modes, owners and times: all sandboxes of a zygote have the
same ones."""
severity = "high"
proven_open = "root"

[[expect]]
errno = ["EACCES", "EROFS", "ENOENT", "EPERM", "EXDEV"]
'''

FILES = """
    /proc/meminfo /proc/sys/kernel/hostname /proc/sys/vm/max_map_count /sys/devices/system/cpu/online
    /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/memory.max /.proc/meminfo /.proc/sys/vm/max_map_count
""".split()


def write(path):
    os.close(os.open(path, os.O_WRONLY))


def touch(path):
    if not path.startswith("/proc"):
        os.utime(path)
    else:
        # This has no effect on the kernel's own files.
        os.utime(path, (1, 1))


def mode(path):
    os.chmod(path, os.stat(path).st_mode & 0o777)


def owner(path):
    os.chown(path, os.getuid(), os.getgid())


def link(path):
    os.link(path, "/tmp/a-link-to-it")
    os.unlink("/tmp/a-link-to-it")


def attempt():
    refused = set()
    for path in FILES:
        for act in (write, mode, owner, touch, link):
            try:
                act(path)
                return escaped(act.__name__ + " " + path)
            except OSError as error:
                refused.add(errno_name(error.errno))
    for reason in sorted(refused):
        contained(reason)


run(attempt)

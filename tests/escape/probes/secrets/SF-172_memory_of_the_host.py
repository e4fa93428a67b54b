'''
id = "SF-172"
name = "memory of the host"
attempt = """
Compare with the host's memory what sysinfo(2) says and what the kernel's files say, by every path that leads to them."""
severity = "low"
proven_open = "user"

[[expect]]
text = ["another size"]
'''

import re

ROOTS = "/ /proc/self/root/ /proc/thread-self/root/ /proc/1/root/ /proc/self/cwd/../ /proc/../ /.proc/../".split()
FILES = "proc/meminfo proc/zoneinfo proc/iomem sys/devices/system/node/node0/meminfo .proc/meminfo meminfo".split()


def sizes():
    yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    for path in (root + file for root in ROOTS for file in FILES):
        try:
            with open(path) as file:
                text = file.read()
        except OSError:
            continue
        yield from (int(kibibytes) << 10 for kibibytes in re.findall(r"MemTotal: +(\d+) kB", text))
        yield sum(map(int, re.findall(r"present +(\d+)", text))) * os.sysconf("SC_PAGESIZE")


def attempt():
    host = int(var("MEMORY_REAL"))
    found = [size for size in sizes() if abs(size - host) < host / 50]
    if found:
        escaped("%d bytes" % found[0])
    else:
        contained("another size")


run(attempt)

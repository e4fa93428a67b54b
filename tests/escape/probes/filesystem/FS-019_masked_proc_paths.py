'''
id = "FS-019"
name = "OCI masked proc paths readable"
attempt = """
Read one byte of kcore, keys, timer_list, kallsyms, latency_stats, sched_debug, interrupts,
modules, vmallocinfo, slabinfo."""
severity = "medium"
proven_open = "user"

[[expect]]
text = ["masked"]
'''

PATHS = """
    kcore keys key-users timer_list kallsyms latency_stats sched_debug interrupts modules
    vmallocinfo slabinfo iomem kpagecount acpi/wakeup asound/cards
""".split()


def attempt():
    readable = []
    for path in PATHS:
        try:
            with open("/proc/" + path, "rb") as file:
                if file.read(1):
                    readable.append(path)
        except OSError:
            pass
    if readable:
        escaped("readable " + " ".join(readable))
    else:
        contained("masked")


run(attempt)

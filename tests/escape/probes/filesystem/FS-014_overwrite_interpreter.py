'''
id = "FS-014"
name = "overwrite the running interpreter / launcher binary"
attempt = """
Check write access to /proc/self/exe, sys.executable and /proc/1/exe targets (runc
CVE-2019-5736 class)."""
severity = "critical"
refs = "CVE-2019-5736"
proven_open = "root"

[[expect]]
text = ["not writable"]
'''


def writable(path):
    try:
        return os.access(path, os.W_OK)
    except OSError:
        return False


def attempt():
    hits = [path for path in ("/proc/self/exe", "/proc/1/exe", sys.executable) if writable(path)]
    if hits:
        escaped("W_OK on " + ",".join(hits))
    else:
        contained("not writable")


run(attempt)

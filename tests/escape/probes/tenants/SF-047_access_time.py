'''
id = "SF-047"
name = "note when others read"
attempt = "One tenant notes the access time of a shown file, and detects by it that the other reads the file."
severity = "medium"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 3
needs = ["access-times"]
set = ["filesystem.read=[\"{SHARED}\"]"]

[[expect]]
text = ["holds", "read", "nothing to be seen"]
'''

def read_at():
    return os.stat(var("SHARED")).st_atime_ns


def hold():
    kept["before"] = read_at()
    contained("holds")


def visit():
    try:
        # If the time may be set: old enough that the next read updates it (relatime).
        os.utime(var("SHARED"), (0, 0))
    except OSError:
        pass
    with open(var("SHARED")) as file:
        file.read(1)
    contained("read")


def look():
    if read_at() != kept["before"]:
        escaped("the other has read it")
    else:
        contained("nothing to be seen")


tenants(hold, visit, look)

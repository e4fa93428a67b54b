'''
id = "SF-056"
name = "tell by process numbers what others do"
attempt = """
One tenant starts two processes and counts from their ids how many another tenant started between
them."""
severity = "low"
proven_open = "user"
open_mode = "two-tenants"
through = "two-tenants"
runs = 3

[[expect]]
text = ["holds", "started", "the next number"]
'''

OTHERS = 20


def child():
    process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitpid(process, 0)
    return process


def hold():
    kept["before"] = child()
    contained("holds")


def visit():
    for _ in range(OTHERS):
        child()
    contained("started")


def look():
    between = child() - kept["before"]
    # Numbers wrap around.
    if between > OTHERS or between < 0:
        escaped("%d were started" % between)
    else:
        contained("the next number")


tenants(hold, visit, look)

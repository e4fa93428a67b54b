'''
id = "SF-128"
name = "core file of a process that crashes"
attempt = "Raise the limit on core files to its maximum, crash a child, and look for its memory."
severity = "low"
proven_open = "user"
needs = ["core-files"]

[[expect]]
text = ["no core"]
'''

import glob
import resource
import signal


def attempt():
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
        os._exit(0)
    os.waitpid(child, 0)
    sizes = [os.stat(path).st_size for path in glob.glob("core*")]
    if any(size > 4096 for size in sizes):
        escaped("core of %d bytes" % max(sizes))
    else:
        contained("no core")


run(attempt)

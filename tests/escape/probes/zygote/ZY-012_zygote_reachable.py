'''
id = "ZY-012"
name = "zygote or supervisor process reachable"
attempt = "Signal 0 to the parent, read its memory map, ptrace it."
severity = "critical"
proven_open = "user"
open_mode = "zygote"

[[expect]]
text = ["parent * out of reach"]
'''


def attempt():
    parent = os.getppid()
    reached = []
    if parent > 1:
        try:
            os.kill(parent, 0)
            reached.append("kill")
        except OSError:
            pass
        try:
            with open("/proc/%d/maps" % parent) as maps:
                maps.read(1)
            reached.append("maps")
        except OSError:
            pass
        try:
            os.close(os.open("/proc/%d/mem" % parent, os.O_RDWR))
            reached.append("mem")
        except OSError:
            pass
    if reached:
        escaped("parent %d: %s" % (parent, " ".join(reached)))
    else:
        contained("parent %d out of reach" % parent)


run(attempt)

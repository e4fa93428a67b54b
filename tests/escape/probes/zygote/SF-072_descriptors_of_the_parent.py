'''
id = "SF-072"
name = "open what the parent has open"
attempt = "Open each descriptor of the parent by its number in /proc."
severity = "critical"
proven_open = "user"
open_mode = "zygote"

[[expect]]
errno = ["ENOENT", "EACCES", "EPERM"]
text = ["none"]
'''

def attempt():
    parent = os.getppid() or 1
    opened = []
    for number in os.listdir("/proc/%d/fd" % parent):
        try:
            os.close(os.open("/proc/%d/fd/%s" % (parent, number), os.O_RDONLY | os.O_NONBLOCK))
            opened.append(number)
        except OSError:
            pass
    if opened:
        escaped(" ".join(opened))
    else:
        contained("none")


run(attempt)

'''
id = "FS-016"
name = "dangerous device nodes present"
attempt = """
Try to open /dev/mem, kmsg, kvm, fuse, net/tun, loop-control, vhost-*, disks, dri,
snapshot."""
severity = "critical"
proven_open = "root"

[[expect]]
text = ["none opened"]
'''

import glob

NODES = """
    mem kmem port kmsg kvm fuse net/tun loop-control loop0 vhost-net vhost-vsock vsock snapshot
    userfaultfd btrfs-control uinput console tty0
""".split()


def attempt():
    paths = ["/dev/" + node for node in NODES]
    for pattern in ("/dev/[svn]d[a-z]*", "/dev/vd*", "/dev/nvme*"):
        paths += glob.glob(pattern)[:4]
    paths += glob.glob("/dev/dri/*")
    opened = []
    for path in paths:
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
            opened.append(path)
        except OSError:
            pass
    if opened:
        escaped("opened " + " ".join(opened))
    else:
        contained("none opened")


run(attempt)

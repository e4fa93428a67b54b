'''
id = "SE-005"
name = "container and service sockets"
attempt = "connect() to docker, containerd, podman, crio, systemd, D-Bus sockets."
severity = "critical"
proven_open = "user"

[[expect]]
text = ["none"]

[[expect]]
errno = ["EPERM"]
'''

import glob
import socket

SERVICES = """
    /var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock /run/podman/podman.sock
    /run/crio/crio.sock /run/systemd/private /run/dbus/system_bus_socket /run/systemd/notify
""".split()


def attempt():
    paths = SERVICES + glob.glob("/run/user/*/bus") + glob.glob("/tmp/ssh-*/agent.*")
    paths.append(var("USOCK"))
    connected = []
    for path in filter(None, paths):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            client = socket.socket(socket.AF_UNIX, kind)
            client.settimeout(1)
            try:
                client.connect(path)
                connected.append(path)
                break
            except OSError:
                pass
            finally:
                client.close()
    if connected:
        escaped("connected " + " ".join(connected))
    else:
        contained("none")


run(attempt)

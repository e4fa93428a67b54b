'''
id = "PR-012"
name = "nested user+mount namespace and a mount"
attempt = "unshare(NEWUSER|NEWNS), map self to root, mount tmpfs on its own directory."
severity = "critical"
proven_open = "user"
needs = ["user-namespaces"]

[[expect]]
errno = ["EPERM"]
'''

import ctypes

CLONE_NEWUSER = 0x10000000
CLONE_NEWNS = 0x20000


def attempt():
    uid = os.getuid()
    result, code = syscall(number(272, 97), CLONE_NEWUSER | CLONE_NEWNS)
    if result:
        return contained("unshare " + errno_name(code))
    try:
        with open("/proc/self/setgroups", "w") as file:
            file.write("deny")
    except OSError:
        pass
    with open("/proc/self/uid_map", "w") as file:
        file.write("0 %d 1" % uid)
    os.makedirs("mnt_pr012", exist_ok=True)
    result, code = syscall(
        number(165, 40),
        ctypes.c_char_p(b"none"),
        ctypes.c_char_p(b"mnt_pr012"),
        ctypes.c_char_p(b"tmpfs"),
        0,
        0,
    )
    if result == 0:
        escaped("mounted tmpfs in a nested namespace")
    else:
        contained("mount " + errno_name(code))


run(attempt)

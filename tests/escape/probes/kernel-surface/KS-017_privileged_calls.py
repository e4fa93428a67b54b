'''
id = "KS-017"
name = "privileged system calls sweep"
attempt = """
Call 15 administrator system calls with invalid arguments; an errno other than EPERM/ENOSYS
shows that no privilege check stopped it."""
severity = "critical"
proven_open = "root"

[[expect]]
text = ["all refused"]
'''

import ctypes

# These fail on their invalid arguments even with privilege: only success counts.
SUCCESS_ONLY = "umount2 chroot fspick pivot_root settimeofday mount_setattr mount".split()


def attempt():
    nowhere = ctypes.c_char_p(b"/nonexistent_sandfork")
    hostname = os.uname().nodename
    calls = {
        "mount": (number(165, 40), nowhere, nowhere, nowhere, 0, 0),
        "umount2": (number(166, 39), ctypes.c_char_p(b"/proc/self"), 8),
        "pivot_root": (number(155, 41), nowhere, nowhere),
        "init_module": (number(175, 105), 0, 0, nowhere),
        "delete_module": (number(176, 106), nowhere, 0),
        "kexec_load": (number(246, 104), 0, 99, 0, 0xFFFF),
        "reboot": (number(169, 142), 1, 2, 3, 0),
        "swapon": (number(167, 224), nowhere, 0),
        "swapoff": (number(168, 225), nowhere),
        "acct": (number(163, 89), nowhere),
        "sethostname": (number(170, 161), ctypes.c_char_p(hostname.encode()), len(hostname)),
        "mount_setattr": (442, -100, nowhere, 0, 0, 0),
        "fspick": (433, -100, nowhere, 0),
        "settimeofday": (number(164, 170), 0, 0),
        "chroot": (number(161, 51), nowhere),
    }
    passed = []
    for name, arguments in calls.items():
        result, code = syscall(*arguments)
        if name in SUCCESS_ONLY:
            unchecked = result == 0
        else:
            unchecked = code not in (errno.EPERM, errno.ENOSYS, errno.EACCES)
        if unchecked:
            passed.append("%s:%s" % (name, "ok" if result >= 0 else errno_name(code)))
    # settimeofday(NULL, NULL) changes nothing and needs no privilege.
    if [call for call in passed if not call.startswith("settimeofday")]:
        escaped(" ".join(passed))
    else:
        contained("all refused")


run(attempt)

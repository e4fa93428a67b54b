'''
id = "PV-005"
name = "usable set-uid programs"
attempt = "Look for set-uid root files on suid-honouring mounts while no_new_privs is off."
severity = "critical"
proven_open = "user"

[[expect]]
text = ["* suid files, nnp=1"]
'''

import glob
import stat

PR_GET_NO_NEW_PRIVS = 39
DIRECTORIES = ("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/lib/openssh", "/usr/libexec")


def honoured(path):
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode) or not mode & stat.S_ISUID:
            return False
        return not os.statvfs(path).f_flag & os.ST_NOSUID
    except OSError:
        return False


def attempt():
    no_new_privs, _ = syscall(number(157, 167), PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
    usable = []
    for directory in DIRECTORIES:
        usable += [path for path in glob.glob(directory + "/*") if honoured(path)]
    if usable and no_new_privs == 0:
        escaped("usable " + " ".join(usable[:4]))
    else:
        contained("%d suid files, nnp=%d" % (len(usable), no_new_privs))


run(attempt)

'''
id = "SF-166"
name = "a program of its own with more rights"
attempt = """
With `filesystem.work_exec`: copy a program into the work directory, mark it set-user-ID, run it, and look whether it
has a capability, no filter or new privileges; then run the same from /tmp and /dev/shm, which stay noexec."""
severity = "critical"
proven_open = "root"
set = ["filesystem.work_exec=true"]

[[expect]]
text = ["as jailed as its maker"]

[[expect]]
policies = ["strict"]
errno = ["EPERM", "EACCES", "ENOENT"]
why = "strict runs no program and shows none"
'''

import shutil
import subprocess


def attempt():
    shutil.copyfile("/bin/cat", "program")
    os.chmod("program", 0o4755)
    said = subprocess.run(["./program", "/proc/self/status"], check=True, capture_output=True, text=True).stdout
    status = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
    if int(status["CapEff"], 16) or status["Seccomp"].strip() != "2" or status["NoNewPrivs"].strip() != "1":
        escaped("CapEff %s, Seccomp %s" % (status["CapEff"].strip(), status["Seccomp"].strip()))
        return
    for directory in ("/tmp", "/dev/shm"):
        path = os.path.join(directory, "sf166-%d" % os.getpid())
        shutil.copyfile("/bin/cat", path)
        os.chmod(path, 0o755)
        try:
            subprocess.run([path, "/dev/null"], check=True)
            escaped("runs in " + directory)
            return
        except PermissionError:
            pass
        finally:
            os.unlink(path)
    contained("as jailed as its maker")


run(attempt)

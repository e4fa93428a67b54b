'''
id = "SF-029"
name = "another program without the jail"
attempt = """
Run /bin/sh where the policy allows programs: it must not read more than Python can, and must hold
the same seccomp filter, no_new_privs and empty capability sets."""
severity = "critical"
proven_open = "user"
policies = ["standard"]

[[expect]]
text = ["jailed"]
'''

import subprocess

SCRIPT = 'cat "$1"; while read -r line; do echo "$line"; done < /proc/self/status'
JAILED = {
    "NoNewPrivs": "1",
    "Seccomp": "2",
    "CapEff": "0000000000000000",
    "CapBnd": "0000000000000000",
}


def attempt():
    command = ["/bin/sh", "-c", SCRIPT, "sh", var("CANARY")]
    output = subprocess.run(command, capture_output=True, timeout=5).stdout.decode()
    if "CANARY" in output:
        return escaped("/bin/sh read the canary")
    status = dict(line.split(":", 1) for line in output.splitlines() if ":" in line)
    loose = [key for key, value in JAILED.items() if status.get(key, "").strip() != value]
    if loose:
        escaped("/bin/sh runs without " + " ".join(loose))
    else:
        contained("jailed")


run(attempt)

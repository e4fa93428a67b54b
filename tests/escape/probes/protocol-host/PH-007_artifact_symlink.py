'''
id = "PH-007"
name = "artifact symlink to a host file"
attempt = "Leave result.txt as a symlink to the canary (and a directory symlink to /)."
severity = "critical"
refs = "CVE-2024-28185"
proven_open = "user"
host_check = "no-canary-collected"

[[expect]]
text = ["planted"]
'''


def attempt():
    for path, target in (("result.txt", var("CANARY")), ("rootdir", "/")):
        try:
            os.unlink(path)
        except OSError:
            pass
        os.symlink(target, path)
    try:
        with open("result.txt") as file:
            text = file.read()
    except OSError:
        text = ""
    if text.startswith("CANARY"):
        escaped("resolves inside")
    else:
        contained("planted")


run(attempt)

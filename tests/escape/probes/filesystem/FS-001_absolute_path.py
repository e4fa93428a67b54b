'''
id = "FS-001"
name = "read host file by absolute path"
attempt = "Open the canary file by its absolute host path."
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ENOENT", "EACCES"]
'''


def attempt():
    with open(var("CANARY")) as file:
        text = file.read()
    if text.startswith("CANARY"):
        escaped("read " + text[:20])
    else:
        contained("other content")


run(attempt)

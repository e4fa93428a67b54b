'''
id = "SF-012"
name = "shared memory file of the host"
attempt = "Read the file that the host keeps in /dev/shm."
severity = "high"
proven_open = "user"

[[expect]]
errno = ["ENOENT", "EACCES"]
'''


def attempt():
    with open(var("SHM_BAIT")) as file:
        text = file.read()
    if text.startswith("CANARY"):
        escaped("read " + text[:20])
    else:
        contained("other content")


run(attempt)

'''
id = "SF-120"
name = "hard link to a file of the host"
attempt = "Hard-link the canary into the work directory, where no path rule covers its new name."
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ENOENT", "EXDEV", "EACCES"]
'''

def attempt():
    os.link(var("CANARY"), "linked")
    with open("linked") as file:
        if file.read().startswith("CANARY"):
            escaped("linked and read")


run(attempt)

'''
id = "SF-121"
name = "write to a shown file as its owner"
attempt = "Make a file that is shown read-only and owned by the same user writable, and write to it."
severity = "critical"
proven_open = "user"
set = ["filesystem.read=[\"{SHARED}\"]"]

[[expect]]
errno = ["EROFS", "EPERM", "EACCES"]
'''

def attempt():
    os.chmod(var("SHARED"), 0o644)
    with open(var("SHARED"), "r+") as file:
        file.write("C")
    escaped("written")


run(attempt)

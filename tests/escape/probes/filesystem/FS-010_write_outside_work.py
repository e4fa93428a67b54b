'''
id = "FS-010"
name = "write outside the work directory"
attempt = "Create a marker file next to the canary on the host."
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ENOENT", "EROFS", "EACCES"]
'''


def attempt():
    directory = var("MARKER_DIR") or os.path.dirname(var("CANARY"))
    path = os.path.join(directory, "marker_fs010")
    with open(path, "w") as file:
        file.write("x")
    escaped("created " + path)
    os.unlink(path)


run(attempt)

'''
id = "FS-003"
name = "read host file through a symlink made inside"
attempt = "Create a symlink in the working directory that points at the canary, then read it."
severity = "critical"
proven_open = "user"

[[expect]]
errno = ["ENOENT", "EACCES"]
'''


def attempt():
    os.symlink(var("CANARY"), "link_fs003")
    try:
        with open("link_fs003") as file:
            text = file.read()
        if text.startswith("CANARY"):
            escaped("read " + text[:20])
        else:
            contained("other content")
    finally:
        os.unlink("link_fs003")


run(attempt)

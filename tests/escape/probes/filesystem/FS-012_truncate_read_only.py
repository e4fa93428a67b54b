'''
id = "FS-012"
name = "truncate through a read-only policy"
attempt = "truncate() the canary to its present size (Landlock ABI<3 does not control truncate)."
severity = "high"
refs = "Landlock ABI 3"
proven_open = "user"

[[expect]]
errno = ["ENOENT", "EROFS", "EACCES"]
'''


def attempt():
    path = var("CANARY")
    os.truncate(path, os.stat(path).st_size)
    escaped("truncate allowed")


run(attempt)
